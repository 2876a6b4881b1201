"""Sizes and times, as people write and read them."""

from __future__ import annotations

import re

__all__ = ["about", "bytes_of", "size", "time"]

_SIZE = re.compile(r"\s*(\d+)\s*(TiB|GiB|MiB|KiB|B)\s*")
_UNITS = {"TiB": 40, "GiB": 30, "MiB": 20, "KiB": 10, "B": 0}
"""The units with their powers of two."""


def bytes_of(memory: str | int) -> int:
    """Converts a size to bytes: a number of bytes, or a text such as `8GiB`. Raises `ValueError` for other values.

    >>> bytes_of("8GiB"), bytes_of(512)
    (8589934592, 512)
    """
    if isinstance(memory, str):
        found = _SIZE.fullmatch(memory)
        count = 0 if found is None else int(found[1]) << _UNITS[found[2]]
    else:
        count = memory
    if not 0 < count < 1 << 63:
        raise ValueError(f"{memory!r} is not a size; write a whole number with a unit, such as 512MiB or 8GiB")
    return count


def size(count: int) -> str:
    """Returns a number of bytes in the largest unit of which it is a whole number.

    >>> size(8 << 30), size(1536)
    ('8 GiB', '1536 B')
    """
    unit = next(unit for unit, shift in _UNITS.items() if count % (1 << shift) == 0)
    return f"{count >> _UNITS[unit]} {unit}"


def about(count: int) -> str:
    """Returns a number of bytes, rounded.

    >>> about(300), about(7_969_177), about(1 << 30)
    ('300 bytes', '7.6 MiB', '1.0 GiB')
    """
    unit, name = next((1 << shift, name) for name, shift in _UNITS.items() if count >> shift or not shift)
    return f"{count} bytes" if unit == 1 else f"{count / unit:.1f} {name}"


def time(duration: float) -> str:
    """Returns a time in seconds in the largest unit of which it is a whole number.

    >>> time(7200.0), time(90.0), time(1.5)
    ('2 h', '90 s', '1.5 s')
    """
    for unit, length in (("h", 3600), ("min", 60)):
        if duration % length == 0:
            return f"{duration / length:g} {unit}"
    return f"{duration:g} s"
