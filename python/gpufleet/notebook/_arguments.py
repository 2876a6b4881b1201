"""The arguments of a cell's kernel, by the names of its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpufleet._task import ProgressCounter
from gpufleet.notebook._options import CellError, CellOptions, Output, extents

__all__ = ["CellParameter", "arguments", "results"]


@dataclass(frozen=True, slots=True)
class CellParameter:
    """A parameter. A writable one comes back."""

    name: str
    is_array: bool = False
    is_writable: bool = False


def arguments(
    kernel: str, parameters: Sequence[CellParameter], options: CellOptions, names: Mapping[str, Any]
) -> list[Any]:
    """The arguments in order. Every parameter has to be named by -i or -o."""
    known = {parameter.name: parameter for parameter in parameters}
    for name in (*options.inputs, *options.outputs):
        if name not in known:
            raise CellError(f"kernel {kernel!r} has no parameter {name!r}; its parameters are {', '.join(known)}")
    for name in options.outputs:
        if not known[name].is_writable:
            kind = "the kernel only reads it" if known[name].is_array else "it is no array"
            raise CellError(f"parameter {name!r} of kernel {kernel!r} can't be in -o, because {kind}")
    return [_argument(kernel, parameter, options, names) for parameter in parameters]


def results(parameters: Sequence[CellParameter], options: CellOptions, result: Any) -> dict[str, Any]:
    """The new values of variables. `result` has the outputs of all writable parameters."""
    writable = [parameter.name for parameter in parameters if parameter.is_writable]
    values = [] if not writable else [result] if len(writable) == 1 else list(result)
    found = dict(zip(writable, values, strict=True))
    return {output.variable: found[name] for name, output in options.outputs.items()}


def _argument(kernel: str, parameter: CellParameter, options: CellOptions, names: Mapping[str, Any]) -> Any:
    output = options.outputs.get(parameter.name)
    if output is not None and output.dtype is not None:
        return np.zeros(_shape(output, names), output.dtype)
    variable = options.inputs.get(parameter.name) if output is None else output.variable
    if variable is None:
        how = f"-o {parameter.name}:f32[SIZE]" if parameter.is_writable else f"-i {parameter.name}"
        raise CellError(f"parameter {parameter.name!r} of kernel {kernel!r} is not given; add {how}")
    if variable not in names:
        raise CellError(f"parameter {parameter.name!r} of kernel {kernel!r}: there is no variable {variable!r}")
    if output is not None and isinstance(names[variable], ProgressCounter):
        raise CellError(f"a progress counter does not come back; pass it with -i {parameter.name}={variable}")
    return names[variable]


def _shape(output: Output, names: Mapping[str, Any]) -> tuple[int, ...]:
    return extents(output.shape, names)
