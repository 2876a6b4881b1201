"""The C++ types of kernel parameters: the elements of an array, and their layout."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpufleet._wire import DTYPES

__all__ = ["Element", "element_of"]


@dataclass(frozen=True, slots=True)
class Element:
    """An element of an array, or a scalar: numbers of one dtype of the wire format. `float4` has four."""

    wire: str
    count: int = 1
    is_complex: bool = False
    is_char: bool = False

    @property
    def size(self) -> int:
        return DTYPES[self.wire].itemsize * self.count

    @property
    def align(self) -> int:
        """The alignment in bytes. CUDA aligns vectors of two and four to their size, up to 16 bytes, and vectors of
        three like a single number.
        """
        number = DTYPES[self.wire].itemsize
        return number if self.count == 3 else min(self.size, 16)

    def takes(self, dtype: np.dtype[Any], wire: str) -> bool:
        """Returns whether an array of this dtype, called `wire` in messages, has such elements."""
        if dtype.kind == "c":
            return self.count == 2 and self.wire == wire
        return wire == self.wire or (self.is_char and wire == "u8")

    def pack(self, number: complex) -> bytes:
        """Encodes a Python number. Raises `ValueError` if it does not fit."""
        if self.count > 1:
            if not self.is_complex:
                raise ValueError(f"a vector of {self.count} numbers")
            return b"".join(Element(self.wire).pack(part) for part in (number.real, number.imag))
        if isinstance(number, complex):
            raise ValueError("a real number")
        if self.wire == "bool":
            return _pack_integer(DTYPES["bool"], number, 0, 1)
        if self.wire[0] in "iu":
            bits = int(self.wire[1:])
            low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if self.wire[0] == "i" else (0, (1 << bits) - 1)
            return _pack_integer(DTYPES[self.wire], number, low, high)
        return _pack_float(self.wire, number)


def _pack_integer(dtype: np.dtype[Any], number: float, low: int, high: int) -> bytes:
    if not isinstance(number, int):
        raise ValueError("a whole number; convert it with int()")
    if not low <= number <= high:
        raise ValueError(f"a number from {low} to {high}")
    return np.array(number, dtype).tobytes()


def _pack_float(wire: str, number: float) -> bytes:
    try:
        if wire == "bf16":
            (word,) = struct.unpack("<I", struct.pack("<f", number))
            # Rounds to the nearest, ties to even, as devices do. A NaN keeps its upper half.
            word += 0 if math.isnan(number) else 0x7FFF + (word >> 16 & 1)
            return struct.pack("<H", word >> 16)
        return struct.pack({"f16": "<e", "f32": "<f", "f64": "<d"}[wire], number)
    except OverflowError:
        raise ValueError(f"a number that {wire} can hold") from None


_WORDS = {
    ("bool",): Element("bool"),
    ("_Bool",): Element("bool"),
    ("char",): Element("i8", is_char=True),
    ("char", "signed"): Element("i8"),
    ("char", "unsigned"): Element("u8"),
    ("float",): Element("f32"),
    ("double",): Element("f64"),
    ("signed",): Element("i32"),
    ("unsigned",): Element("u32"),
}
for _sign, _prefix in (("", "i"), ("signed", "i"), ("unsigned", "u")):
    for _words, _bits in (("int", 32), ("short", 16), ("long", 64), ("long long", 64)):
        _WORDS[tuple(sorted(f"{_sign} {_words}".split()))] = Element(f"{_prefix}{_bits}")
        if _words != "int":
            _WORDS[tuple(sorted(f"{_sign} {_words} int".split()))] = Element(f"{_prefix}{_bits}")

_NAMED = {
    "size_t": Element("u64"),
    "ptrdiff_t": Element("i64"),
    "half": Element("f16"),
    "__half": Element("f16"),
    "half2": Element("f16", 2),
    "__half2": Element("f16", 2),
    "nv_bfloat16": Element("bf16"),
    "__nv_bfloat16": Element("bf16"),
    "nv_bfloat162": Element("bf16", 2),
    "__nv_bfloat162": Element("bf16", 2),
    "intptr_t": Element("i64"),
    "uintptr_t": Element("u64"),
    "cuComplex": Element("f32", 2, is_complex=True),
    "cuFloatComplex": Element("f32", 2, is_complex=True),
    "cuDoubleComplex": Element("f64", 2, is_complex=True),
    "complex<float>": Element("f32", 2, is_complex=True),
    "complex<double>": Element("f64", 2, is_complex=True),
    "dim3": Element("u32", 3),
}
for _bits in (8, 16, 32, 64):
    _NAMED[f"int{_bits}_t"] = Element(f"i{_bits}")
    _NAMED[f"uint{_bits}_t"] = Element(f"u{_bits}")
_VECTORS = {
    "char": "i8",
    "uchar": "u8",
    "short": "i16",
    "ushort": "u16",
    "int": "i32",
    "uint": "u32",
    "long": "i64",
    "ulong": "u64",
    "longlong": "i64",
    "ulonglong": "u64",
    "float": "f32",
    "double": "f64",
}
for (_name, _wire), _count in itertools.product(_VECTORS.items(), (1, 2, 3, 4)):
    _NAMED[f"{_name}{_count}"] = Element(_wire, _count, is_complex=_count == 2 and _wire in ("f32", "f64"))

_NAMESPACES = {"std", "cuda", "thrust"}


def element_of(words: Sequence[str]) -> Element | None:
    """Returns the element for a C++ type, or `None` if only the compiler knows its layout."""
    if found := _WORDS.get(tuple(sorted(words))):
        return found
    name = [word for word in words if word not in _NAMESPACES and word != "::"]
    return _NAMED.get("".join(name))
