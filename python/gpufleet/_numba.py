"""Kernels in Python, which numba-cuda compiles to PTX on the producer. Compiling needs no GPU."""

from __future__ import annotations

import inspect
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gpufleet._arrays import Unsupported, wire_dtype
from gpufleet._binding import ArgumentError, Bound, scalar_of
from gpufleet._element import Element
from gpufleet._errors import InvalidJob
from gpufleet._launching import LaunchedKernel
from gpufleet._operand import operand
from gpufleet._signature import Parameter
from gpufleet._task import Options, ProgressCounter, Ptx, Value

if TYPE_CHECKING:
    from gpufleet._fleet import Fleet

__all__ = ["NumbaKernel"]

CAPABILITY = (7, 5)
"""The compute capability to compile for. Newer devices run the code too."""


@dataclass(frozen=True, slots=True)
class _ArgumentType:
    """A parameter: an array with this number of dimensions, or a number if `ndim` is `None`."""

    parameter: Parameter
    dtype: np.dtype[Any]
    ndim: int | None


class NumbaKernel(LaunchedKernel):
    """A Python function that runs as a kernel: `kernel(grid, block, args)`.

    `signature` has Numba's types, such as `"f4, f4[::1], f4[::1]"`. `outputs` has the indices of the arrays to return,
    by default all of them. Arrays are sent in C order. `capability` is the compute capability to compile for; newer
    devices run the code too. Raises `InvalidJob` if the function can not be compiled.
    """

    def __init__(
        self,
        fleet: Fleet,
        function: Callable[..., object],
        signature: str,
        *,
        outputs: Sequence[int] | None = None,
        capability: tuple[int, int] = CAPABILITY,
        fastmath: bool = False,
        job: Options | None = None,
    ) -> None:
        plain = getattr(function, "py_func", function)
        name = plain.__name__
        types = _types(name, signature)
        argument_types = _argument_types(name, plain, types, outputs)
        ptx, entry = _compiled(plain, types, capability, fastmath)
        super().__init__(fleet, Ptx(ptx), entry, name, partial(_bind, name, argument_types), job or Options())


def _types(name: str, signature: str) -> Sequence[Any]:
    """Returns Numba's types of the parameters."""
    try:
        from numba.cuda.core import sigutils  # noqa: PLC0415  # pyright: ignore[reportMissingImports]
    except ImportError as problem:
        raise ImportError("kernels in Python need the package numba-cuda; install gpufleet[numba]") from problem
    try:
        # A comma makes a tuple of one type.
        types, _ = sigutils.normalize_signature(signature if "(" in signature else f"({signature.rstrip(', ')},)")
    except Exception as problem:
        raise InvalidJob(
            f"kernel {name!r}: {signature!r} is not a signature of Numba types, such as 'f4, f4[::1]': {problem}"
        ) from problem
    found: Sequence[Any] = types
    return found


def _compiled(
    function: Callable[..., object], types: Sequence[Any], capability: tuple[int, int], fastmath: bool
) -> tuple[str, str]:
    """Returns the PTX and the name of its entry."""
    from numba import cuda  # noqa: PLC0415
    from numba.cuda.cudadrv.error import CudaSupportError  # noqa: PLC0415

    try:
        ptx, _ = cuda.compile_ptx(  # pyright: ignore[reportPrivateImportUsage]
            function, tuple(types), cc=capability, fastmath=fastmath
        )
    except CudaSupportError as problem:
        raise InvalidJob(
            f"kernel {function.__name__!r} calls a device function, which Numba compiles only where there is a"
            ' GPU; declare that function with @cuda.jit(device=True, inline="always")'
        ) from problem
    found = next(line for line in ptx.splitlines() if ".entry" in line)
    return ptx, found.split(".entry")[1].strip(" (")


def _argument_types(
    name: str, function: Callable[..., object], types: Sequence[Any], outputs: Sequence[int] | None
) -> list[_ArgumentType]:
    names = list(inspect.signature(function).parameters)
    if len(names) != len(types):
        raise InvalidJob(f"kernel {name!r} has {len(names)} parameters, but the signature has {len(types)}")
    pairs = enumerate(zip(names, types, strict=True))
    argument_types = [
        _argument_type(each, type_, outputs is None or index in outputs) for index, (each, type_) in pairs
    ]
    for index in outputs or ():
        if not (0 <= index < len(argument_types) and argument_types[index].ndim is not None):
            raise InvalidJob(f"kernel {name!r}: outputs: argument {index} is not an array")
    return argument_types


def _argument_type(name: str, type_: Any, is_output: bool) -> _ArgumentType:
    ndim: int | None = getattr(type_, "ndim", None)
    if getattr(type_, "layout", "C") == "F":
        raise InvalidJob(
            f"{name!r}: arrays are sent in C order, but {type_} is in Fortran order; write [:, ::1] or [:, :]"
        )
    number = type_ if ndim is None else type_.dtype
    try:
        dtype = np.dtype("bool" if str(number) in ("bool", "boolean") else str(number))
        wire = wire_dtype(dtype)
    except TypeError as problem:
        raise InvalidJob(f"{name!r} has the type {type_}, which is no number or array of numbers") from problem
    element = Element(wire, 2, is_complex=True) if dtype.kind == "c" else Element(wire)
    is_input = ndim is not None and (not is_output or not getattr(type_, "mutable", True))
    return _ArgumentType(Parameter(name, str(type_), element, ndim is not None, is_input), dtype, ndim)


def _bind(name: str, argument_types: Sequence[_ArgumentType], args: Sequence[object]) -> Bound:
    if not isinstance(args, tuple | list) or len(args) != len(argument_types):
        names = ", ".join(argument_type.parameter.name for argument_type in argument_types)
        raise ArgumentError(f"kernel {name!r} takes a tuple of {len(argument_types)} arguments ({names})")
    bound = Bound(name)
    for index, (argument_type, value) in enumerate(zip(argument_types, args, strict=True)):
        place = f"kernel {name!r}, argument {index + 1}: parameter {argument_type.parameter}"
        if argument_type.ndim is None:
            number = scalar_of(place, argument_type.parameter.element, value)
            # Numba passes a complex number as two parameters.
            size = argument_type.dtype.alignment
            bound.args += [Value(number.data[at : at + size], size) for at in range(0, len(number.data), size)]
        else:
            _add_array(bound, place, argument_type, value)
    return bound


def _add_array(bound: Bound, place: str, argument_type: _ArgumentType, value: object) -> None:
    """Adds an array as seven parameters: two null pointers, items, bytes of an item, address, extents and strides."""
    if isinstance(value, ProgressCounter):
        if argument_type.dtype not in (np.uint64, np.int64) or argument_type.ndim != 1:
            raise ArgumentError(f"{place} can not be a progress counter; declare it as uint64[::1]")
        bound.args += [_word(0), _word(0), _word(1), _word(8), value, _word(1), _word(8)]
        return
    try:
        given = operand(value)
    except Unsupported as problem:
        raise ArgumentError(f"{place} takes an array: {problem}") from problem
    dtype, shape = given.like.dtype, given.like.shape
    if dtype.newbyteorder("=") != argument_type.dtype:
        raise ArgumentError(
            f"{place} takes {argument_type.dtype.name}, but the array has {dtype.name}; pass array.astype"
            f"(numpy.{argument_type.dtype.name})"
        )
    if len(shape) != argument_type.ndim:
        raise ArgumentError(
            f"{place} takes {argument_type.ndim} dimensions, but the array has {len(shape)}; reshape it"
        )
    itemsize = argument_type.dtype.itemsize
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    words = [0, 0, math.prod(shape), itemsize]
    bound.args += [_word(word) for word in words]
    bound.add_array(argument_type.parameter, value, given)
    bound.args += [_word(word) for word in (*shape, *strides)]


def _word(value: int) -> Value:
    return Value(struct.pack("<q", value), 8)
