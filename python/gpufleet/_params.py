"""Parameter lists of generated kernels, in CuPy's form: `"T x, raw float32 y"`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from gpufleet._arrays import Unsupported, wire_dtype
from gpufleet._binding import ArgumentError
from gpufleet._operand import Operand, operand

__all__ = ["Given", "Param", "given", "parse", "resolve"]

_NAME = re.compile(r"[A-Za-z]\w*")


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter. A type of one character is a placeholder, which the arguments determine."""

    name: str
    type: str
    is_raw: bool = False

    @property
    def is_placeholder(self) -> bool:
        return len(self.type) == 1


@dataclass(slots=True)
class Given:
    """An argument: an array, or a number by value."""

    value: object
    array: Operand | None

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The dtype of the argument. `None` for a Python number, which takes any dtype."""
        if self.array is not None:
            return self.array.like.dtype
        return self.value.dtype if isinstance(self.value, np.generic) else None


def parse(text: str) -> tuple[Param, ...]:
    """Reads a parameter list.

    >>> parse("T x, raw float32 y")
    (Param(name='x', type='T', is_raw=False), Param(name='y', type='float32', is_raw=True))
    """
    return tuple(_param(part) for part in text.split(",") if part.strip())


def _param(text: str) -> Param:
    words = text.split()
    is_raw = words[0] == "raw"
    if len(words) != 2 + is_raw:
        raise ValueError(
            f"{text.strip()!r} is not a parameter; write a type and a name, such as 'T x' or 'raw float32 y'"
        )
    type_, name = words[-2:]
    if name in ("i", "n") or not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} can not name a parameter; i, n and names with a leading _ are reserved")
    if len(type_) > 1:
        dtype_named(type_)
    elif not type_.isalpha():
        raise ValueError(f"{type_!r} is not a type; write a letter as a placeholder, or a dtype such as float32")
    return Param(name, type_, is_raw)


@cache
def dtype_named(name: str) -> np.dtype[Any]:
    """Returns the dtype with a name of NumPy's. `bfloat16` is that of the package ml_dtypes."""
    try:
        if name == "bfloat16":
            import ml_dtypes  # noqa: PLC0415

            dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        else:
            dtype = np.dtype(name)
        wire_dtype(dtype)
    except (TypeError, ImportError) as problem:
        raise ValueError(
            f"{name!r} is not a type; write a letter as a placeholder, or a dtype such as float32, int64 or complex64"
        ) from problem
    return dtype


def given(kernel: str, param: Param, value: object) -> Given:
    """Reads an argument. A number is accepted only for a parameter without `raw`."""
    if isinstance(value, int | float | complex | np.generic) and not param.is_raw:
        return Given(value, None)
    try:
        return Given(value, operand(value))
    except Unsupported as problem:
        raise ArgumentError(f"kernel {kernel!r}: {param.name!r}: {problem}") from problem


def resolve(
    kernel: str,
    params: Sequence[Param],
    outputs: Mapping[str, Given],
    inputs: Mapping[str, Given],
) -> dict[str, np.dtype[Any]]:
    """Returns the dtype of each type in the lists. Outputs take precedence over inputs, arrays over numbers."""
    types: dict[str, np.dtype[Any]] = {}
    for arguments in (outputs, inputs):
        for param in params:
            found = arguments.get(param.name)
            if found is not None and (dtype := found.dtype) is not None:
                _agree(kernel, types, param, dtype if dtype.isnative else dtype.newbyteorder("="))
    for param in params:
        found = inputs.get(param.name)
        if found is not None and found.dtype is None and param.is_placeholder:
            types.setdefault(param.type, np.asarray(found.value).dtype)
    for param in params:
        if not param.is_placeholder:
            types[param.type] = dtype_named(param.type)
        elif param.type not in types:
            raise ArgumentError(
                f"kernel {kernel!r}: the inputs do not tell the type {param.type} of {param.name!r}; pass the output as"
                " an argument, such as numpy.empty(shape, dtype)"
            )
    return types


def _agree(kernel: str, types: dict[str, np.dtype[Any]], param: Param, dtype: np.dtype[Any]) -> None:
    wanted = types.setdefault(param.type, dtype) if param.is_placeholder else dtype_named(param.type)
    if wanted != dtype:
        why = f"the type {param.type} is {wanted.name}" if param.is_placeholder else f"its type is {wanted.name}"
        raise ArgumentError(
            f"kernel {kernel!r}: {param.name!r} has the dtype {dtype.name}, but {why}; convert it with"
            f" .astype({wanted.name!r})"
        )
