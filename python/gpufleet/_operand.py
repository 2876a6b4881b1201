"""An array argument of a kernel: the caller's array, or a reference to elements that are elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufleet._arrays import Like, as_array, to_input, wire_dtype
from gpufleet._lazy import LazyArray
from gpufleet._remote import RemoteArray
from gpufleet._task import Buffer, Ref, Stored, Zeros
from gpufleet._wire import DTYPES
from gpufleet._zeros import ZeroArray

__all__ = ["Operand", "operand"]


@dataclass(slots=True, eq=False)
class Operand:
    """An array argument and its type."""

    like: Like
    wire: str
    """The name of the dtype in messages."""
    held: npt.NDArray[Any] | Stored | Zeros | Ref

    @property
    def array(self) -> npt.NDArray[Any] | None:
        """The caller's array, or None if the elements are elsewhere."""
        return self.held if isinstance(self.held, np.ndarray) else None

    @property
    def is_empty(self) -> bool:
        return 0 in self.like.shape

    def buffer(self) -> Buffer:
        return to_input(self.held) if isinstance(self.held, np.ndarray) else self.held


def operand(value: object) -> Operand:
    """Reads an argument. Raises `Unsupported` if it is not an array."""
    if isinstance(value, LazyArray):
        return Operand(value.like, value.ref.dtype, value.ref)
    if isinstance(value, ZeroArray):
        zeros = value.buffer()
        return Operand(value.like, zeros.dtype, zeros)
    held = value.stored if isinstance(value, RemoteArray) else value
    if isinstance(held, Stored | Zeros):
        return Operand(Like(DTYPES[held.dtype], held.shape), held.dtype, held)
    array = as_array(held)
    return Operand(Like.of(array), wire_dtype(array.dtype), array)
