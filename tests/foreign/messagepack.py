"""MessagePack as far as replies need it, for machines without a library."""

import struct


def decode(data: bytes) -> object:
    value, end = _value(data, 0)
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes follow the end")
    return value


def _value(data: bytes, at: int) -> tuple[object, int]:
    marker, at = data[at], at + 1
    if marker <= 0x7F:
        return marker, at
    if marker >= 0xE0:
        return marker - 0x100, at
    if marker in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[marker], at
    if marker in _NUMBERS:
        form = _NUMBERS[marker]
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    for family, (first, mask, wide) in _FAMILIES.items():
        if first is not None and marker & ~mask == first:
            return _contents(family, data, at, marker & mask)
        if marker in wide:
            width = wide[marker]
            length = int.from_bytes(data[at : at + width], "big")
            return _contents(family, data, at + width, length)
    raise ValueError(f"byte {marker:#04x} starts no value")


_NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_FAMILIES = {
    "map": (0x80, 0x0F, {0xDE: 2, 0xDF: 4}),
    "list": (0x90, 0x0F, {0xDC: 2, 0xDD: 4}),
    "text": (0xA0, 0x1F, {0xD9: 1, 0xDA: 2, 0xDB: 4}),
    "bytes": (None, 0, {0xC4: 1, 0xC5: 2, 0xC6: 4}),
}


def _contents(family: str, data: bytes, at: int, length: int) -> tuple[object, int]:
    if family in ("text", "bytes"):
        part = data[at : at + length]
        if len(part) < length:
            raise ValueError("it ends in the middle of a value")
        return (part.decode() if family == "text" else part), at + length
    items = []
    for _ in range(length * (2 if family == "map" else 1)):
        item, at = _value(data, at)
        items.append(item)
    return (dict(zip(items[::2], items[1::2])) if family == "map" else items), at
