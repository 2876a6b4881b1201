"""Arrays that start as zeros on the device."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy.typing as npt
from numpy import dtype as numpy_dtype

from gpufleet._arrays import Like, wire_dtype
from gpufleet._task import Zeros

__all__ = ["ZeroArray", "zeros"]


@dataclass(frozen=True, slots=True)
class ZeroArray:
    """An array that starts as zeros on the device. `gpufleet.zeros` makes it. Its elements are not sent."""

    like: Like

    @property
    def shape(self) -> tuple[int, ...]:
        return self.like.shape

    def buffer(self) -> Zeros:
        return Zeros(self.like.wire_shape, wire_dtype(self.like.dtype))

    def __repr__(self) -> str:
        return f"<gpufleet.zeros {self.like.dtype.name}{list(self.like.shape)}>"


def zeros(shape: int | Sequence[int], dtype: npt.DTypeLike = float) -> ZeroArray:
    """Returns an output for kernels that take their outputs as arguments, such as those of `RawKernel`.

    Raises `ValueError` if the shape is invalid, and `InvalidJob` if the dtype can not be sent.

    >>> zeros((2, 3), "float32")
    <gpufleet.zeros float32[2, 3]>
    """
    extents = (shape,) if isinstance(shape, int) else shape
    found = tuple(map(operator.index, extents))
    if any(extent < 0 for extent in found):
        raise ValueError(f"{shape!r} is not a shape; give numbers of elements, such as (480, 640)")
    like = Like(numpy_dtype(dtype), found)
    wire_dtype(like.dtype)
    return ZeroArray(like)
