"""The options of the magic `%%gpu`."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from gpufleet._wire import DTYPES

__all__ = ["CellError", "CellOptions", "Output", "Parser", "extents", "parse"]

BLOCKS = {1: (256,), 2: (16, 16), 3: (8, 8, 4)}
"""The blocks for a number of dimensions."""

_ITEM = re.compile(
    r"\s*(?P<name>\w+)\s*(?:=\s*(?P<variable>\w+)\s*)?(?::\s*(?P<dtype>\w+)\s*\[(?P<shape>[^\]]*)\]\s*)?"
)
_SEPARATOR = re.compile(r",(?![^\[]*\])")


class CellError(ValueError):
    """The options of a cell are wrong."""


@dataclass(frozen=True, slots=True)
class Output:
    """A parameter that comes back into a variable. Without a dtype, it starts with the variable's contents."""

    variable: str
    dtype: np.dtype[Any] | None = None
    shape: str = ""


@dataclass(frozen=True, slots=True)
class CellOptions:
    """What a cell says. Names of parameters lead to variables."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, Output]
    cover: str | None = None
    block: str | None = None
    kernel: str | None = None
    nvrtc: tuple[str, ...] = ()
    is_python: bool = False

    @property
    def runs(self) -> bool:
        return self.cover is not None

    def grid(self, names: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The grid and the block that cover the threads."""
        threads = extents(self.cover or "", names)
        block = extents(self.block, names) if self.block else BLOCKS[len(threads)]
        if len(block) != len(threads):
            raise CellError(f"--cover has {len(threads)} extents, but --block has {len(block)}")
        return tuple(-(-count // size) for count, size in zip(threads, block, strict=True)), block


class Parser(argparse.ArgumentParser):
    """Reads the options of a magic."""

    def error(self, message: str) -> NoReturn:
        raise CellError(f"{message}; {self.prog}? shows the options")


_PARSER = Parser(prog="%%gpu", add_help=False, allow_abbrev=False)
_PARSER.add_argument("-i", "--in", dest="inputs", action="append", default=[])
_PARSER.add_argument("-o", "--out", dest="outputs", action="append", default=[])
_PARSER.add_argument("--cover")
_PARSER.add_argument("--block")
_PARSER.add_argument("--kernel")
_PARSER.add_argument("--option", dest="nvrtc", action="append", default=[])
_PARSER.add_argument("--python", action="store_true")


def parse(line: str) -> CellOptions:
    """Reads the line of `%%gpu`.

    >>> options = parse("-i x,y=photo -o z:f32[8] --cover 1024")
    >>> options.inputs, options.outputs["z"].shape, options.grid({})
    ({'x': 'x', 'y': 'photo'}, '8', ((4,), (256,)))
    """
    try:
        words = shlex.split(line)
    except ValueError as problem:
        raise CellError(f"{line!r}: {problem}") from None
    found = _PARSER.parse_args(words)
    inputs = {name: variable for name, variable, _, _ in _items("-i", found.inputs, typed=False)}
    outputs = {
        name: Output(variable, None if dtype is None else _dtype(dtype), shape)
        for name, variable, dtype, shape in _items("-o", found.outputs, typed=True)
    }
    if twice := sorted(inputs.keys() & outputs.keys()):
        raise CellError(f"{twice[0]!r} is in -i and in -o; -o {twice[0]} alone passes the variable and replaces it")
    if found.cover is None and (inputs or outputs or found.block or found.kernel):
        raise CellError("--cover is missing, the number of threads, as in --cover 1024 or --cover 640,480")
    return CellOptions(
        inputs, outputs, found.cover, found.block, found.kernel, tuple(found.nvrtc), is_python=found.python
    )


def extents(text: str, names: Mapping[str, Any]) -> tuple[int, ...]:
    """One to three extents, each a number or the name of a variable.

    >>> extents("640,height", {"height": 480})
    (640, 480)
    """
    found = tuple(_extent(part.strip(), names) for part in text.split(","))
    if len(found) > 3:
        raise CellError(f"{text!r} has more than three extents")
    return found


def _extent(text: str, names: Mapping[str, Any]) -> int:
    value = names.get(text, text)
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        raise CellError(f"{text!r} is neither a positive number nor a variable that has one")
    return number


def _items(option: str, texts: Sequence[str], *, typed: bool) -> list[tuple[str, str, str | None, str]]:
    """The parts of `x,y=photo,z:f32[640,480]`: parameter, variable, dtype and shape."""
    found = []
    for part in (part for text in texts for part in _SEPARATOR.split(text)):
        item = _ITEM.fullmatch(part)
        if item is None or (item["dtype"] is not None and not typed):
            form = "z:f32[1024], z=result:f32[640,480] or z" if typed else "x or x=photo"
            raise CellError(f"{option} {part!r} has the wrong form; write {form}")
        found.append((item["name"], item["variable"] or item["name"], item["dtype"], item["shape"] or ""))
    return found


def _dtype(name: str) -> np.dtype[Any]:
    try:
        return DTYPES.get(name) or np.dtype(name)
    except TypeError:
        raise CellError(f"{name!r} is no dtype; write one such as {', '.join(DTYPES)} or complex64") from None
