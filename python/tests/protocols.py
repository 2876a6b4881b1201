"""The five protocols by which the tests hand over the same array."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]

WIRE = {
    "bool": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
COMPLEX = {"complex64": np.dtype(np.complex64), "complex128": np.dtype(np.complex128)}
DTYPES = {**WIRE, **COMPLEX}


class Interface:
    """Offers only `__array_interface__`."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self.__array_interface__ = array.__array_interface__


class Tensor:
    """Offers only DLPack, with every dtype and stride that the specification allows."""

    def __init__(self, array: Array, device: int = 1) -> None:
        self._array, self._device = array, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device, 0

    def __dlpack__(self, **_: object) -> object:
        return _capsule(self._array, self._device)


class _Managed(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_alive: list[object] = []
"""What the capsules point to. Tests are short, so it is kept until they end."""


def _capsule(array: Array, device: int) -> object:
    extents = ctypes.c_int64 * max(array.ndim, 1)
    shape = extents(*array.shape)
    strides = extents(*(step // array.itemsize for step in array.strides))
    code = 4 if array.dtype == ml_dtypes.bfloat16 else _CODES[array.dtype.kind]
    managed = _Managed(
        array.ctypes.data, device, 0, array.ndim, code, array.itemsize * 8, 1, shape, strides, 0, None, None
    )
    _alive.append((array, shape, strides, managed))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(ctypes.addressof(managed), b"dltensor", None)


def by_numpy(array: Array) -> object:
    return array


def by_buffer(array: Array) -> object | None:
    """NumPy's buffers carry no bfloat16."""
    return None if array.dtype == ml_dtypes.bfloat16 else array.data


def by_interface(array: Array) -> object | None:
    """`__array_interface__` names dtypes by letters, of which bfloat16 has none."""
    return None if array.dtype == ml_dtypes.bfloat16 else Interface(array)


def by_dlpack(array: Array) -> object | None:
    """DLPack has no byte order."""
    return Tensor(array) if array.dtype.isnative else None


def by_arrow(array: Array) -> object | None:
    """Arrow's arrays have one dimension, one layout, native byte order and real numbers."""
    is_plain = array.ndim == 1 and array.dtype.isnative
    if not is_plain or array.dtype.kind == "c" or array.dtype == ml_dtypes.bfloat16:
        return None
    numbers: object = pa.array(array)
    return numbers


PROTOCOLS = {
    "numpy": by_numpy,
    "buffer": by_buffer,
    "array_interface": by_interface,
    "dlpack": by_dlpack,
    "arrow": by_arrow,
}


def read_only(array: Array) -> Array:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def layouts(dtype: np.dtype[Any]) -> dict[str, Array]:
    """The same numbers in every layout that NumPy has."""
    numbers = np.arange(24) % 2 if dtype.kind == "b" else np.arange(24)
    flat = numbers.astype(dtype)
    if dtype.kind == "c":
        flat = flat - 1j * flat[::-1]
        flat = flat.astype(dtype)
    square = flat.reshape(4, 6)
    return {
        "vector": flat,
        "C": square,
        "F": np.asfortranarray(square),
        "strided": square[::2, ::3],
        "strided_vector": flat[::3],
        "negative": square[::-1, ::-1],
        "negative_vector": flat[::-1],
        "0-d": np.array(flat[7]),
        "empty": flat[:0],
        "empty_2d": square[:0],
        "big-endian": square.astype(dtype.newbyteorder(">")) if dtype.name != "bfloat16" else square,
        "read-only": read_only(square),
        "read-only_vector": read_only(flat),
        "9-d": flat[:8].reshape(2, 1, 2, 1, 1, 2, 1, 1, 1),
    }
