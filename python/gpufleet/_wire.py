"""The dtypes of the wire format as NumPy dtypes, and arrays over received bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from gpufleet._core import Bytes

DTYPES: dict[str, np.dtype[Any]] = {
    "bool": np.dtype("?"),
    "i8": np.dtype("i1"),
    "i16": np.dtype("<i2"),
    "i32": np.dtype("<i4"),
    "i64": np.dtype("<i8"),
    "u8": np.dtype("u1"),
    "u16": np.dtype("<u2"),
    "u32": np.dtype("<u4"),
    "u64": np.dtype("<u8"),
    "f16": np.dtype("<f2"),
    # NumPy has no bfloat16. The package ml_dtypes has one with the same bits.
    "bf16": np.dtype("<u2"),
    "f32": np.dtype("<f4"),
    "f64": np.dtype("<f8"),
}


def array_of(data: Bytes, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Returns a writable array over bytes that the extension module owns."""
    # NumPy takes any buffer, but its stubs know only those of the standard library.
    return np.ndarray(shape, DTYPES[dtype], data)  # type: ignore[arg-type]
