"""Kernels that are launched with a grid, a block and arguments in order, as CuPy's raw kernels are."""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar

import numpy.typing as npt

from gpufleet._binding import Bound, Output
from gpufleet._mapping import Results
from gpufleet._task import Launch, Options, Program, Task

__all__ = ["LaunchedKernel", "Pending", "Submitter", "extents"]

Array = npt.NDArray[Any]
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Pending(Protocol[T_co]):
    """A result that will arrive."""

    def result(self, timeout: float | None = None) -> T_co: ...
    def cancel(self) -> bool: ...


class Submitter(Protocol):
    """What kernels need of a fleet. `finish` makes the caller's result of the outputs by buffer name."""

    def _submit(self, task: Task, finish: Callable[[Mapping[str, Array]], T]) -> Pending[T]: ...


class LaunchedKernel:
    """A kernel with an entry. Call it to wait for the result; `.submit` returns a future at once."""

    def __init__(
        self,
        fleet: Submitter,
        program: Program,
        entry: str,
        bind: Callable[[Sequence[object]], Bound],
        options: Options,
    ) -> None:
        self._fleet = fleet
        self._program = program
        self._entry = entry
        self._bind = bind
        self._options = options

    @property
    def name(self) -> str:
        """The kernel's name in its program."""
        return self._entry

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._entry!r}>"

    def options(self, **changes: Any) -> Self:
        """Returns a copy whose jobs have these options: pool, priority, labels, time_limit, requires and others."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._options = self._options.replace(**changes)
        return copy

    def __call__(
        self, grid: int | Sequence[int], block: int | Sequence[int], args: Sequence[object], shared_mem: int = 0
    ) -> Any:
        """Runs the kernel, waits, and writes its outputs back into the arrays that were passed for them.

        Returns these arrays: one, or a named tuple by parameter. They stay as they are if the job fails.
        """
        bound = self._bind(args)
        bound.check_targets()
        results = self._fleet._submit(self._task(grid, block, bound, shared_mem), _taker(bound.outputs)).result()
        bound.write_back(results)
        values = [
            result if target is None else value
            for value, target, result in zip(bound.values, bound.targets, results, strict=True)
        ]
        return _packed(self._entry, bound.outputs, values)

    def submit(
        self, grid: int | Sequence[int], block: int | Sequence[int], args: Sequence[object], shared_mem: int = 0
    ) -> Pending[Any]:
        """Submits the kernel and returns a future of new arrays. The arguments are never changed."""
        bound = self._bind(args)
        take, outputs, entry = _taker(bound.outputs), bound.outputs, self._entry

        def finish(results: Mapping[str, Array]) -> Any:
            return _packed(entry, outputs, take(results))

        return self._fleet._submit(self._task(grid, block, bound, shared_mem), finish)

    def map(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Iterable[Sequence[object]],
        shared_mem: int = 0,
    ) -> Results[Any]:
        """Submits the kernel for each tuple of arguments and yields the results in order."""
        return Results(lambda each: self.submit(grid, block, each, shared_mem), args)

    def _task(self, grid: int | Sequence[int], block: int | Sequence[int], bound: Bound, shared_mem: int) -> Task:
        launch = Launch(self._entry, extents("grid", grid), extents("block", block), tuple(bound.args), shared_mem)
        outputs = dict.fromkeys(output.buffer for output in bound.outputs if output.buffer is not None)
        options = self._options if self._options.name else self._options.replace(name=self._entry)
        return Task(self._program, bound.buffers, (launch,), tuple(outputs), options)


def extents(what: str, value: int | Sequence[int]) -> tuple[int, ...]:
    """One to three extents. A number stands for one."""
    try:
        found = tuple(int(extent) for extent in (value if isinstance(value, Sequence) else (value,)))
    except (TypeError, ValueError):
        found = ()
    if not 1 <= len(found) <= 3 or min(found) < 1:
        raise ValueError(f"{what} {value!r} is invalid; give one to three positive numbers, such as (32, 8)")
    return found


def _taker(outputs: Sequence[Output]) -> Callable[[Mapping[str, Array]], list[Array]]:
    def take(results: Mapping[str, Array]) -> list[Array]:
        return [output.take(results) for output in outputs]

    return take


def _packed(kernel: str, outputs: Sequence[Output], values: Sequence[Any]) -> Any:
    if len(values) <= 1:
        return values[0] if values else None
    return _tuple_type(kernel, tuple(output.name for output in outputs))(*values)


@functools.lru_cache(maxsize=256)
def _tuple_type(kernel: str, names: tuple[str, ...]) -> Callable[..., tuple[Any, ...]]:
    """A named tuple for the outputs of a kernel. Names that Python reserves become `_0`, `_1` and so on."""
    word = "".join(character if character.isalnum() else "_" for character in kernel)
    title = word if word.isidentifier() else "Outputs"
    return namedtuple(title, names, rename=True)
