"""Converts the caller's arrays to buffers of a task, and results to the caller's type.

An array that is C-contiguous and little-endian is sent without a copy. This module does not use the fleet.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gpufleet._dlpack import from_dlpack
from gpufleet._errors import InvalidJob
from gpufleet._task import Input
from gpufleet._wire import DTYPES

__all__ = ["DIMENSIONS_MAX", "Like", "Unsupported", "as_array", "as_input", "restore", "to_input", "wire_dtype"]

Array = npt.NDArray[Any]

DIMENSIONS_MAX = 8
"""The maximum number of dimensions of a buffer. Arrays with more dimensions are sent flat."""

_PLAIN = frozenset(DTYPES.values())
"""The dtypes that are sent without a conversion."""
_PREFIX = {"b": "bool", "i": "i", "u": "u", "f": "f"}
_SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8)}


class Unsupported(InvalidJob, TypeError):
    """The value can not be sent as an array. The message says what to do instead."""


# Making a frozen object takes five times as long, and each job has several.
@dataclass(slots=True, unsafe_hash=True)
class Like:
    """The dtype and shape of the caller's array, without its contents."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @staticmethod
    def of(array: Array) -> Like:
        return Like(array.dtype, array.shape)

    @property
    def wire_shape(self) -> tuple[int, ...]:
        """The shape of the buffer."""
        shape = (*self.shape, 2) if self.dtype.kind == "c" else self.shape
        return shape if len(shape) <= DIMENSIONS_MAX else (math.prod(shape),)


def as_input(value: object) -> Input:
    """Makes a buffer of any value that has the contents of an array. Raises `Unsupported` for other values.

    >>> as_input(bytes(3)).dtype
    'u8'
    >>> as_input(np.ones(2, np.complex64)).array.shape
    (2, 2)
    """
    return to_input(as_array(value))


def as_array(value: object) -> Array:
    """Returns a view of a value as a NumPy array, in any layout. Only packed data, such as Arrow's bools, is copied."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    _refuse_device_arrays(value)
    if type(value).__module__.partition(".")[0] == "pyarrow" and hasattr(value, "null_count"):
        return _from_arrow(value)
    for read in (_from_buffer, _from_interface, _from_dlpack, _from_array_method):
        array = read(value)
        if array is not None:
            return array
    if isinstance(value, Future):
        raise Unsupported("a future has no elements yet; pass future.result()")
    raise Unsupported(
        f"{_type_name(value)} is not an array; pass a NumPy array, for example numpy.asarray(value, dtype=...)"
    )


def to_input(array: Array) -> Input:
    """Makes a buffer of a NumPy array. The bytes are copied only if they are not C-contiguous and little-endian."""
    dtype = wire_dtype(array.dtype)
    if array.dtype in _PLAIN and array.flags.c_contiguous and array.ndim <= DIMENSIONS_MAX:
        return Input(array, dtype)
    plain = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
    if array.dtype.kind == "c":
        part = np.dtype(f"<f{array.dtype.itemsize // 2}")
        plain = plain.reshape(*plain.shape, 1).view(part)
    elif dtype == "bf16":
        plain = plain.view(np.uint16)
    if plain.ndim > DIMENSIONS_MAX:
        plain = plain.reshape(-1)
    return Input(plain, dtype)


def restore(array: Array, like: Like | Array) -> Array:
    """Returns a result with the dtype and shape of the caller's array. The result is writable."""
    dtype = like.dtype
    if dtype.kind == "c" or _is_bfloat16(dtype):
        array = np.asarray(array, order="C").reshape(-1).view(dtype.newbyteorder("<"))
    array = array.reshape(like.shape).astype(dtype, copy=False)
    return array if array.flags.writeable else array.copy()


@cache
def wire_dtype(dtype: np.dtype[Any]) -> str:
    """Returns the name of a dtype in messages. Complex numbers are sent as pairs of their parts."""
    kind, size = dtype.kind, dtype.itemsize
    if kind == "c" and size in (8, 16):
        return f"f{size * 4}"
    if size in _SIZES.get(kind, ()):
        return "bool" if kind == "b" else f"{_PREFIX[kind]}{size * 8}"
    if _is_bfloat16(dtype):
        return "bf16"
    raise Unsupported(f"dtype {dtype.name} can not be sent: {_why_not(dtype)}")


def _why_not(dtype: np.dtype[Any]) -> str:
    match dtype.kind:
        case "O":
            return "it holds Python objects; convert it to numbers, for example array.astype(numpy.float64)"
        case "U" | "S" | "T":
            return "it holds text; encode it as numbers, for example with numpy.unique(array, return_inverse=True)"
        case "M" | "m":
            return "kernels have no dates; send the ticks with array.view(numpy.int64)"
        case "f" | "c":
            return "devices have no such number; convert it with array.astype(numpy.float64) or numpy.complex128"
        case "V" if dtype.names:
            return "it is a structure; send each field as an array, or the bytes with array.view(numpy.uint8)"
    return "the wire has no such type; send the bytes with array.view(numpy.uint8)"


def _is_bfloat16(dtype: np.dtype[Any]) -> bool:
    return dtype.name == "bfloat16" and dtype.itemsize == 2


def _refuse_device_arrays(value: object) -> None:
    device = None
    if hasattr(value, "__cuda_array_interface__"):
        device = "a CUDA device"
    elif (where := _call(value, "__dlpack_device__")) is not None and where[0] not in _HOST_DEVICES:
        device = f"a device (DLPack device type {int(where[0])})"
    if device is not None:
        raise Unsupported(
            f"{_type_name(value)} is in the memory of {device}, which workers can not read; call .cpu() first"
            " (CuPy: cupy.asnumpy(array))"
        )


_HOST_DEVICES = (1, 3)
"""DLPack's device types kDLCPU and kDLCUDAHost. The latter is pinned memory of the host."""


def _from_arrow(value: Any) -> Array:
    if value.null_count:
        raise Unsupported(
            f"the array has {value.null_count} nulls, which kernels can not see; fill them first with .fill_null(0)"
        )
    kind = str(value.type)
    if kind.startswith(("fixed_size_list", "list", "large_list")):
        raise Unsupported(f"an Arrow array of {kind} is nested; pass its elements with .flatten()")
    zero_copy = {} if hasattr(value, "chunks") else {"zero_copy_only": False}
    return cast(Array, value.to_numpy(**zero_copy))


def _from_buffer(value: Any) -> Array | None:
    try:
        view = memoryview(value)
    except TypeError:
        return None
    try:
        return np.asarray(view)
    except (ValueError, TypeError) as problem:
        raise Unsupported(
            f"{_type_name(value)} has the buffer format {view.format!r}, which NumPy can not read; pass view.cast('B')"
        ) from problem


def _from_interface(value: object) -> Array | None:
    return np.asarray(value) if hasattr(value, "__array_interface__") else None


def _from_dlpack(value: object) -> Array | None:
    if not hasattr(value, "__dlpack__"):
        return None
    try:
        return from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as problem:
        raise Unsupported(f"{_type_name(value)} can not be read through DLPack: {problem}") from problem


def _from_array_method(value: object) -> Array | None:
    return np.asarray(value) if hasattr(value, "__array__") else None


def _call(value: object, method: str) -> Any:
    function: Callable[[], Any] | None = getattr(value, method, None)
    return None if function is None else function()


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
