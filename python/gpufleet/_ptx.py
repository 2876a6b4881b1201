"""Kernels in PTX, which other compilers have generated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gpufleet._binding import bind
from gpufleet._element import Element
from gpufleet._launching import LaunchedKernel
from gpufleet._signature import Parameter, Signature, SignatureError
from gpufleet._task import Options, Ptx

if TYPE_CHECKING:
    from gpufleet._fleet import Fleet

__all__ = ["PtxKernel", "ptx_signature"]

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([\w$%]+)\s*(?:\(([^)]*)\))?")
_TYPE = re.compile(r"\.([usfb])(8|16|32|64)\b")
_WIRE = {"u": "u", "s": "i", "f": "f", "b": "u"}


class PtxKernel(LaunchedKernel):
    """A kernel in PTX: `kernel(grid, block, args)`.

    PTX does not distinguish an address from a 64-bit number, and does not say which arrays a kernel writes. So an array
    is passed as an address, and every array is returned, unless `outputs` has the indices of the arrays to return.
    Raises `SignatureError` if the PTX has no such entry.
    """

    def __init__(
        self,
        fleet: Fleet,
        text: str,
        entry: str,
        *,
        outputs: Sequence[int] | None = None,
        job: Options | None = None,
    ) -> None:
        found = ptx_signature(text, entry, outputs)
        super().__init__(fleet, Ptx(text), entry, entry, partial(bind, found), job or Options())


def ptx_signature(text: str, entry: str, outputs: Sequence[int] | None = None) -> Signature:
    """Reads the parameters of an entry.

    >>> found = ptx_signature(".visible .entry k(.param .u64 x, .param .f32 a) {}", "k")
    >>> [str(parameter) for parameter in found.parameters]
    ["'arg0' (.u64)", "'arg1' (.f32)"]
    """
    entries = {match[1]: match[2] or "" for match in _ENTRY.finditer(_COMMENT.sub("", text))}
    if entry not in entries:
        known = f"its entries are {', '.join(entries)}" if entries else "it has no .entry"
        raise SignatureError(f"the PTX has no entry {entry!r}; {known}")
    parts = [part for part in entries[entry].split(",") if part.strip()]
    parameters = [_parameter(index, part.split()) for index, part in enumerate(parts)]
    for index in outputs or ():
        if not (0 <= index < len(parameters) and parameters[index].is_word):
            raise SignatureError(f"outputs: argument {index} of entry {entry!r} can not be an array")
    if outputs is not None:
        parameters = [replace(each, is_input=index not in outputs) for index, each in enumerate(parameters)]
    return Signature(entry, tuple(parameters))


def _parameter(index: int, words: Sequence[str]) -> Parameter:
    spelled = " ".join(word for word in words[:-1] if word != ".param")
    found = _TYPE.search(spelled)
    if found is None or "[" in words[-1] or (found[1] == "b" and found[2] != "64"):
        # Untyped bits and structures have the layout that the compiler chose.
        return Parameter(f"arg{index}", spelled, None)
    element = Element(f"{_WIRE[found[1]]}{found[2]}")
    return Parameter(f"arg{index}", spelled, element, is_word=found[1] in "usb" and found[2] == "64")
