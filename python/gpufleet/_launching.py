"""Kernels that take a grid, a block and arguments in order, like CuPy's raw kernels."""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gpufleet._binding import ArgumentError, Bound, only_read
from gpufleet._errors import explain
from gpufleet._in_place import InPlaceKernel
from gpufleet._results import Results, common_length
from gpufleet._task import Launch, Options, Program, Task

if TYPE_CHECKING:
    from gpufleet._fleet import Fleet
    from gpufleet._future import Outputs

__all__ = ["LaunchedKernel"]

Extents = int | tuple[int, ...] | list[int]


class LaunchedKernel(InPlaceKernel):
    """A kernel of a program: `kernel(grid, block, args, shared_mem=0)`.

    `grid` and `block` are one to three extents. `shared_mem` is the dynamic shared memory in bytes. The outputs are one
    array, or a named tuple by parameter.
    """

    _declares_reads = False
    """Whether the parameters declare which arrays the kernel only reads. Otherwise it may write to any array."""

    def __init__(
        self,
        fleet: Fleet,
        program: Program,
        entry: str,
        name: str,
        bind: Callable[[Sequence[object]], Bound],
        options: Options,
    ) -> None:
        super().__init__(fleet, options if options.name else options.replace(name=name))
        self._program = program
        self._entry = entry
        self._name = name
        self._bind_args = bind

    def compile(self) -> None:
        """Compiles the program on a worker now, and loads it into a device. Raises `CompileError` or `LoadError`.

        By default, the first job does that. A worker compiles instances of templates when a job names them.
        """
        compile_program(self._fleet, self._program, self._options)

    def map(  # type: ignore[override]
        self, grid: Extents, block: Extents, args: Iterable[Sequence[object]], shared_mem: int = 0
    ) -> Results[Any]:
        """Runs a job for each tuple of arguments, and yields the results in order."""
        jobs = ((grid, block, each, shared_mem) for each in args)
        return self._many(jobs, common_length([args]), {})

    def _bind(self, grid: Extents, block: Extents, args: Sequence[object], shared_mem: int = 0) -> tuple[Task, Bound]:
        bound = self._bind_args(args)
        launch = Launch(self._entry, extents("grid", grid), extents("block", block), tuple(bound.args), shared_mem)
        outputs = bound.output_buffers()
        shared = only_read(bound.buffers, outputs) if self._declares_reads else ()
        return Task(self._program, bound.buffers, (launch,), outputs, self._options, shared), bound

    def _packed(self, names: Sequence[str], values: Sequence[Any]) -> Any:
        if len(values) <= 1:
            return values[0] if values else None
        return _tuple_type(self._name, tuple(names))(*values)


class _Compiled:
    """Makes the result of a job that only compiles."""

    __slots__ = ("_program",)

    def __init__(self, program: Program) -> None:
        self._program = program

    def __call__(self, _: Outputs) -> None:
        return None

    def explain(self, error: BaseException) -> None:
        explain(error, self._program)


def compile_program(fleet: Fleet, program: Program, options: Options) -> None:
    """Compiles a program on a worker, and waits until that is done."""
    fleet._submit(Task(program, {}, (), (), options), _Compiled(program)).result()


def extents(what: str, value: Extents) -> tuple[int, ...]:
    """Returns one to three extents. A number stands for one extent."""
    try:
        found = tuple(map(int, value if isinstance(value, tuple | list) else (value,)))
    except (TypeError, ValueError):
        found = ()
    if not 1 <= len(found) <= 3 or min(found) < 1:
        raise ArgumentError(f"{what} {value!r} is invalid; give one to three positive numbers, such as (32, 8)")
    return found


@functools.lru_cache(maxsize=256)
def _tuple_type(kernel: str, names: tuple[str, ...]) -> Callable[..., tuple[Any, ...]]:
    """Returns a named tuple type for the outputs of a kernel. Reserved names become `_0`, `_1` and so on."""
    word = "".join(character if character.isalnum() else "_" for character in kernel)
    title = f"{word}_result"
    return namedtuple(title if title.isidentifier() else "Result", names, rename=True)
