"""Cells with functions of `@cuda.jit`, which Numba compiles here for the types of each call's arguments."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpufleet._arrays import as_array
from gpufleet._errors import InvalidJob
from gpufleet._fleet import Fleet
from gpufleet._future import Future
from gpufleet._numba import NumbaKernel
from gpufleet._remote import RemoteArray
from gpufleet.notebook._arguments import CellParameter, arguments
from gpufleet.notebook._cuda import chosen
from gpufleet.notebook._options import CellError, CellOptions

__all__ = ["JitKernel", "define", "numba_type", "prepare"]


class JitKernel:
    """A kernel in Python, launched as in Numba: `kernel[grid, block](*args)` writes into the arrays."""

    def __init__(self, fleet: Fleet, dispatcher: Any) -> None:
        self.py_func = dispatcher.py_func
        self._fleet = fleet
        self._compiled: dict[tuple[str, tuple[int, ...] | None], NumbaKernel] = {}

    def __getitem__(self, launch: Sequence[Any]) -> Launcher:
        if not isinstance(launch, tuple) or len(launch) != 2:
            raise TypeError(f"write {self.__name__}[grid, block](...); streams and shared memory are not supported")
        return Launcher(self, *launch)

    @property
    def __name__(self) -> str:
        return str(self.py_func.__name__)

    def __repr__(self) -> str:
        return f"<gpufleet kernel {self.__name__!r} in Python>"

    def compiled(self, args: Sequence[object], outputs: Sequence[int] | None = None) -> NumbaKernel:
        """The kernel for arguments of these types."""
        key = ", ".join(map(numba_type, args)), None if outputs is None else tuple(outputs)
        if key not in self._compiled:
            self._compiled[key] = self._fleet.numba(self.py_func, key[0], outputs=outputs)
        return self._compiled[key]


class Launcher:
    """A kernel with a grid and a block."""

    def __init__(self, kernel: JitKernel, grid: Any, block: Any) -> None:
        self._kernel = kernel
        self._extents = grid, block

    def __call__(self, *args: object) -> None:
        """Runs the kernel and waits. As in Numba, the arrays are changed and nothing is returned."""
        self._kernel.compiled(args)(*self._extents, args)

    def submit(self, *args: object) -> Future[Any]:
        """Submits a job, whose result has new arrays."""
        return self._kernel.compiled(args).submit(*self._extents, args)


def numba_type(value: object) -> str:
    """Numba's type for an argument. Arrays are sent in C order.

    >>> numba_type(np.zeros((2, 3), np.float32)), numba_type(1.5), numba_type(3)
    ('float32[:, ::1]', 'float64', 'int64')
    """
    if isinstance(value, np.generic | bool | int | float | complex):
        return _name(np.asarray(value).dtype)
    found = value if isinstance(value, RemoteArray) else as_array(value)
    if not found.shape:
        raise InvalidJob("Numba's kernels take no arrays without dimensions; pass the number itself")
    return f"{_name(found.dtype)}[{', '.join([':'] * (len(found.shape) - 1) + ['::1'])}]"


def define(fleet: Fleet, cell: str, file: str, names: dict[str, Any]) -> dict[str, JitKernel]:
    """Runs a cell, and makes an object of each of its kernels."""
    try:
        from numba.cuda.cudadrv.error import CudaSupportError  # noqa: PLC0415
    except ImportError as problem:
        raise ImportError("kernels in Python need the package numba-cuda; install gpufleet[numba]") from problem
    # The first line of the cell is the magic.
    tree = ast.parse(f"\n{cell}", file)
    try:
        exec(compile(tree, file, "exec"), names)
    except CudaSupportError as problem:
        raise CellError(
            "Numba compiles functions with a signature only where there is a GPU; write @cuda.jit alone, because the"
            " types come from the arguments"
        ) from problem
    found = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    kernels = {name: JitKernel(fleet, names[name]) for name in found if _is_kernel(names.get(name))}
    if not kernels:
        raise CellError("the cell has no kernel; a kernel is a function with @cuda.jit")
    return kernels


def prepare(
    kernels: Mapping[str, JitKernel], options: CellOptions, names: Mapping[str, Any]
) -> tuple[NumbaKernel, list[CellParameter], list[Any]]:
    """The kernel of a cell that runs at once, its parameters and its arguments."""
    kernel = kernels[chosen(list(kernels), options)]
    signature = inspect.signature(kernel.py_func)
    parameters = [
        CellParameter(name, is_array=True, is_writable=name in options.outputs) for name in signature.parameters
    ]
    args = arguments(kernel.__name__, parameters, options, names)
    outputs = [index for index, parameter in enumerate(parameters) if parameter.is_writable]
    return kernel.compiled(args, outputs), parameters, args


def _is_kernel(value: object) -> bool:
    """Device functions stay as they are, because kernels call them."""
    is_jit = type(value).__module__.startswith("numba.cuda") and hasattr(value, "py_func")
    return is_jit and not getattr(value, "targetoptions", {}).get("device")


def _name(dtype: np.dtype[Any]) -> str:
    return "boolean" if dtype.kind == "b" else dtype.newbyteorder("=").name
