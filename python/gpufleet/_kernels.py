"""The kernels that a fleet makes of the caller's own code. Their modules are imported when one is made."""

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
    """Methods of a fleet with the names and arguments of CuPy's classes."""

    def RawKernel(self, code: str, name: str, options: Sequence[str] = ()) -> RawKernel:
        """A kernel in CUDA C++, called as `kernel(grid, block, args)`. `options` are NVRTC's."""
        return gpufleet.RawKernel(self._fleet(), code, name, options)

    def RawModule(
        self, *, code: str, options: Sequence[str] = (), name_expressions: Sequence[str] | None = None
    ) -> RawModule:
        """CUDA C++ with several kernels, which `get_function` returns by name."""
        return gpufleet.RawModule(self._fleet(), code=code, options=options, name_expressions=name_expressions)

    def ElementwiseKernel(
        self, in_params: str, out_params: str, operation: str, name: str = "kernel", **keywords: Any
    ) -> ElementwiseKernel:
        """A kernel that computes each element of its outputs, such as `"T x, T y", "T z", "z = x - y"`."""
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
        """A kernel that reduces axes, such as `"T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0"`."""
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
        """A kernel in PTX, such as Triton and Warp make. `outputs` are the indices of the arrays that come back."""
        return gpufleet.PtxKernel(self._fleet(), text, entry, outputs=outputs)

    def numba(
        self, function: Callable[..., object], signature: str, *, outputs: Sequence[int] | None = None, **keywords: Any
    ) -> NumbaKernel:
        """A kernel in Python, which the package numba-cuda compiles here. Workers need neither Python nor Numba."""
        return gpufleet.NumbaKernel(self._fleet(), function, signature, outputs=outputs, **keywords)

    def _fleet(self) -> Fleet:
        return cast("Fleet", self)
