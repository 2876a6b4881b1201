"""Arrays in the blob store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from gpufleet._task import Stored
from gpufleet._wire import DTYPES

if TYPE_CHECKING:
    from gpufleet._fleet import Fleet


@dataclass(frozen=True, slots=True)
class RemoteArray:
    """A reference to an array in the blob store. Kernels take it in place of an array, and it can be pickled.

    The array stays in the store until `gpufleet blobs prune` deletes it, which is at least a day after its last use.
    """

    stored: Stored

    @property
    def digest(self) -> str:
        """The digest of the elements, such as ``blake3:0f…``."""
        return self.stored.digest

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape

    @property
    def wire_dtype(self) -> str:
        """The name of the dtype in messages, such as ``f32``."""
        return self.stored.dtype

    @property
    def dtype(self) -> np.dtype[Any]:
        return DTYPES[self.stored.dtype]

    def get(self, fleet: Fleet) -> npt.NDArray[Any]:
        """Reads the elements from the store. Raises `StoreFailed` if they are not there."""
        return fleet._read(self.stored)

    def to_dict(self) -> dict[str, Any]:
        """Returns the reference as values for JSON, for pipelines that pass results through a database.

        >>> RemoteArray.from_dict({"digest": "blake3:0f", "dtype": "f32", "shape": [2, 3]}).to_dict()
        {'digest': 'blake3:0f', 'dtype': 'f32', 'shape': [2, 3]}
        """
        return {"digest": self.digest, "dtype": self.wire_dtype, "shape": list(self.shape)}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Returns the array that `to_dict` described. Raises `ValueError` for other dictionaries."""
        match dict(given):
            case {"digest": str(digest), "dtype": str(dtype), "shape": [*shape], **rest} if (
                not rest and dtype in DTYPES
            ):
                return cls(Stored(digest, tuple(map(int, shape)), dtype))
        raise ValueError(f"{dict(given)!r} is not a stored array; it has a digest, a dtype such as 'f32' and a shape")

    def __repr__(self) -> str:
        return f"<gpufleet.RemoteArray {self.dtype.name}{list(self.shape)} {self.digest[:19]}>"
