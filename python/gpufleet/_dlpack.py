"""Reads DLPack tensors in the host's memory.

NumPy reads every dtype except bfloat16. That one is read here from DLPack's structure, following its specification.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["from_dlpack"]

_BFLOAT = 4


class _Tensor(ctypes.Structure):
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
    )


class _Bits:
    """The 16-bit words of a bfloat16 tensor. NumPy holds this object, which keeps the capsule that owns the tensor."""

    def __init__(self, capsule: object, tensor: _Tensor) -> None:
        self.capsule = capsule
        strides = tuple(2 * tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else None
        self.__array_interface__ = {
            "version": 3,
            "typestr": "<u2",
            "shape": tuple(tensor.shape[axis] for axis in range(tensor.ndim)),
            "strides": strides,
            "data": ((tensor.data or 0) + tensor.byte_offset, False),
        }


def from_dlpack(value: Any) -> npt.NDArray[Any]:
    """Returns a view of the tensor, which keeps the tensor alive."""
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError):
        bits = _bfloat16_bits(value.__dlpack__())
        if bits is None:
            raise
        return np.asarray(bits).view(_bfloat16())


def _bfloat16_bits(capsule: object) -> _Bits | None:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    tensor = _Tensor.from_address(pointer(capsule, b"dltensor"))
    is_bfloat16 = (tensor.code, tensor.bits, tensor.lanes) == (_BFLOAT, 16, 1)
    return _Bits(capsule, tensor) if is_bfloat16 else None


def _bfloat16() -> np.dtype[Any]:
    try:
        import ml_dtypes  # noqa: PLC0415
    except ImportError as problem:
        raise TypeError("NumPy has no bfloat16 of its own; install the package ml_dtypes") from problem
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype
