"""A kernel and its arguments as an operator describes them: in JSON, without arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from gpufleet._element import Element
from gpufleet._remote import RemoteArray
from gpufleet._signature import signature
from gpufleet._task import ProgressCounter, Zeros
from gpufleet._wire import DTYPES

if TYPE_CHECKING:
    from gpufleet._fleet import Fleet

__all__ = ["OUTPUTS_MAX", "KernelCall"]

OUTPUTS_MAX = 16
"""The most outputs of a task, so that its result stays below 4 KiB."""


@dataclass(frozen=True)
class KernelCall:
    """A kernel of the catalog with arguments by name, or of CUDA C++ with arguments in order."""

    kernel: str
    arguments: Mapping[str, Any] | Sequence[Any]
    source: str | None = None
    grid: Any = None
    block: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    pool: str | None = None
    """The pool if the options name none."""

    @property
    def job_pool(self) -> str | None:
        """The pool of the job. None if it is the default one."""
        pool: str | None = _read(self.options).get("pool") or self.pool
        return pool

    def detach(self, fleet: Fleet, job_id: str) -> str:
        """Submits the job under an id, and leaves its result to a later program.

        Wrong arguments raise before anything is sent.
        """
        options = {**({"pool": self.pool} if self.pool else {}), **_read(self.options), "id": job_id}
        if self.source is None:
            task = fleet.kernel(self.kernel).options(**options)._prepare(**self._named()).task
        else:
            kernel = fleet.RawKernel(self.source, self.kernel).options(**options)
            task = kernel._prepare(_read(self.grid), _read(self.block), self._ordered(self.source)).task
        if len(task.outputs) > OUTPUTS_MAX:
            raise ValueError(
                f"kernel {self.kernel!r} has {len(task.outputs)} outputs, but a task keeps at most {OUTPUTS_MAX};"
                " declare parameters that are only read as const"
            )
        return fleet._detach(task)

    def _named(self) -> dict[str, Any]:
        arguments = _read(self.arguments)
        if not isinstance(arguments, Mapping):
            raise TypeError(f"the arguments of catalog kernel {self.kernel!r} must be a mapping of names to values")
        return {name: _argument(name, value) for name, value in arguments.items()}

    def _ordered(self, source: str) -> tuple[Any, ...]:
        arguments = _read(self.arguments)
        if not _is_list(arguments):
            raise TypeError(f"the arguments of kernel {self.kernel!r} must be a list in the order of its parameters")
        if self.grid is None or self.block is None:
            raise TypeError(f"kernel {self.kernel!r} is CUDA C++, so it needs a grid and a block")
        parameters = signature(source, self.kernel).parameters or ()
        elements = [parameter.element for parameter in parameters] + [None] * len(arguments)
        numbered = zip(arguments, elements, strict=False)
        return tuple(_argument(f"argument {index + 1}", *each) for index, each in enumerate(numbered))


def _argument(name: str, value: Any, element: Element | None = None) -> Any:
    """An argument of a kernel. A list for a parameter of CUDA C++ becomes an array of the parameter's type."""
    value = _read(value)
    match value:
        case None | int() | float() | RemoteArray():
            return value
        case {"digest": _, "dtype": _, "shape": _, **rest} if not rest:
            return RemoteArray.from_dict(value)
        case {"zeros": shape, "dtype": dtype, **rest} if not rest and dtype in DTYPES:
            return Zeros(tuple(map(int, shape if _is_list(shape) else (shape,))), dtype)
        case {"progress": int() as total, **rest} if not rest:
            return ProgressCounter(total)
        case [*_] if element is not None:
            return np.asarray(value, DTYPES[element.wire])
        case [*_]:
            return value
    raise TypeError(
        f"{name} is a {type(value).__name__}; pass a number, a short list of numbers, a RemoteArray or its JSON, such"
        ' as an output of another task, {"zeros": [1024], "dtype": "f32"} or {"progress": 20000}'
    )


def _read(value: Any) -> Any:
    """A text is JSON, because a template that is not native makes texts of all values."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise TypeError(f"{value!r} is not JSON; in a template, write {{{{ value | tojson }}}}") from None


def _is_list(value: Any) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    return isinstance(value, list | tuple)
