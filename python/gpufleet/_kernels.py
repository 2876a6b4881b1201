"""Makes kernels of the caller's own code. Each kind of kernel is imported at its first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import gpufleet

if TYPE_CHECKING:
    from gpufleet._elementwise import ElementwiseKernel
    from gpufleet._fleet import Fleet
    from gpufleet._numba import NumbaKernel
    from gpufleet._ptx import PtxKernel
    from gpufleet._raw import RawKernel, RawModule
    from gpufleet._reduction import ReductionKernel

__all__ = ["KernelFactories"]


class KernelFactories:
    """Methods of a fleet, with the names and arguments of CuPy's classes."""

    def RawKernel(self, code: str, name: str, options: Sequence[str] = ()) -> RawKernel:
        """Returns a kernel in CUDA C++, to call as `kernel(grid, block, args)`. `options` are NVRTC's."""
        return gpufleet.RawKernel(self._fleet(), code, name, options)

    def RawModule(
        self, *, code: str, options: Sequence[str] = (), name_expressions: Sequence[str] | None = None
    ) -> RawModule:
        """Returns a module in CUDA C++ with several kernels, which its `get_function` returns by name."""
        return gpufleet.RawModule(self._fleet(), code=code, options=options, name_expressions=name_expressions)

    def ElementwiseKernel(
        self, in_params: str, out_params: str, operation: str, name: str = "kernel", **keywords: Any
    ) -> ElementwiseKernel:
        """Returns a kernel that computes each element of its outputs, such as `"T x, T y", "T z", "z = x - y"`."""
        return gpufleet.ElementwiseKernel(self._fleet(), in_params, out_params, operation, name, **keywords)

    def ReductionKernel(
        self,
        in_params: str,
        out_params: str,
        map_expr: str,
        reduce_expr: str,
        post_map_expr: str,
        identity: str | float | None,
        name: str = "reduce_kernel",
        **keywords: Any,
    ) -> ReductionKernel:
        """Returns a kernel that reduces axes, such as `"T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0"`."""
        return gpufleet.ReductionKernel(
            self._fleet(),
            in_params,
            out_params,
            map_expr,
            reduce_expr,
            post_map_expr,
            identity,
            name,
            **keywords,
        )

    def ptx(self, text: str, entry: str, *, outputs: Sequence[int] | None = None) -> PtxKernel:
        """Returns a kernel in PTX, which Triton and Warp can make. `outputs` has the indices of the arrays to return.

        By default, every array is returned.
        """
        return gpufleet.PtxKernel(self._fleet(), text, entry, outputs=outputs)

    def numba(
        self, function: Callable[..., object], signature: str, *, outputs: Sequence[int] | None = None, **keywords: Any
    ) -> NumbaKernel:
        """Returns a kernel in Python, which numba-cuda compiles in this process. Workers need neither Python nor Numba.

        `signature` has Numba's types, such as `"f4, f4[::1]"`. `outputs` has the indices of the arrays to return, by
        default all.
        """
        return gpufleet.NumbaKernel(self._fleet(), function, signature, outputs=outputs, **keywords)

    def _fleet(self) -> Fleet:
        return cast("Fleet", self)
