"""CUDA C++ that generated kernels share: the names of types, and the indexing of arrays."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from gpufleet._arrays import wire_dtype
from gpufleet._complex import COMPLEX
from gpufleet._element import Element
from gpufleet._task import Value

__all__ = ["axes", "c_type", "element", "headers", "packed_axes"]

_C_TYPES = {
    "bool": "bool",
    "i8": "signed char",
    "i16": "short",
    "i32": "int",
    "i64": "long long",
    "u8": "unsigned char",
    "u16": "unsigned short",
    "u32": "unsigned int",
    "u64": "unsigned long long",
    "f16": "__half",
    "bf16": "__nv_bfloat16",
    "f32": "float",
    "f64": "double",
}
_HEADERS = {"__half": "#include <cuda_fp16.h>\n", "__nv_bfloat16": "#include <cuda_bf16.h>\n"}

RUNTIME = """\
template <int N> struct _Axes {
    long long extent[N];
    long long stride[N];
    __device__ long long at(long long index) const {
        long long place = 0;
        for (int axis = N - 1; axis > 0; --axis) {
            place += index % extent[axis] * stride[axis];
            index /= extent[axis];
        }
        return place + index * stride[0];
    }
};
template <typename T, int N> struct _Raw {
    T *_data;
    _Axes<N> _axes;
    enum { ndim = N };
    __device__ T &operator[](long long index) const { return _data[index]; }
    __device__ const long long *shape() const { return _axes.extent; }
    __device__ long long size() const {
        long long size = 1;
        for (int axis = 0; axis < N; ++axis) size *= _axes.extent[axis];
        return size;
    }
};
struct _Indexer {
    long long _size;
    __device__ long long size() const { return _size; }
};
"""
"""The C++ definitions for indexing. Arrays are sent in C order, so the strides are those of broadcasting and of reduced
axes.
"""


@cache
def element(dtype: np.dtype[Any]) -> Element:
    """Returns the layout of a number of this dtype."""
    wire = wire_dtype(dtype)
    return Element(wire, 2, is_complex=True) if dtype.kind == "c" else Element(wire)


@cache
def c_type(dtype: np.dtype[Any]) -> str:
    """Returns the C++ type of a dtype."""
    name = _C_TYPES[wire_dtype(dtype)]
    return f"complex<{name}>" if dtype.kind == "c" else name


@lru_cache(maxsize=256)
def headers(types: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the code that a kernel with these types needs before it."""
    wanted = sorted(set(types))
    complex_ = (COMPLEX,) if any(name.startswith("complex<") for name in wanted) else ()
    return (*(_HEADERS[name] for name in wanted if name in _HEADERS), *complex_, RUNTIME)


def axes(shape: Sequence[int], strides: Sequence[int]) -> tuple[Value, int]:
    """Returns an `_Axes` argument by value, and its number of axes, which is at least one."""
    if not shape:
        shape, strides = (1,), (0,)
    return Value(struct.pack(f"<{2 * len(shape)}q", *shape, *strides), 8), len(shape)


def packed_axes(shape: Sequence[int], array_shape: Sequence[int]) -> list[int]:
    """Returns the strides, in elements, with which an array in C order is broadcast to a shape."""
    strides = [0] * len(shape)
    step = 1
    for axis, extent in zip(range(len(shape) - 1, -1, -1), reversed(array_shape), strict=False):
        strides[axis] = 0 if extent == 1 else step
        step *= extent
    return strides
