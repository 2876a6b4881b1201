"""What all kernels have in common: call, submit, map."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from gpufleet._needs import futures_in
from gpufleet._results import Results, common_length

if TYPE_CHECKING:
    from gpufleet._fleet import Fleet
    from gpufleet._future import Future, Outputs
    from gpufleet._task import Options, Task

R = TypeVar("R")


class Prepared(NamedTuple, Generic[R]):
    """A job, and how its outputs become the result."""

    task: Task
    finish: Callable[[Outputs], R]


class Kernel(ABC, Generic[R]):
    """A kernel with a fleet and the options of its jobs. A subclass says how arguments become a task."""

    def __init__(self, fleet: Fleet, options: Options) -> None:
        self._fleet = fleet
        self._options = options

    @abstractmethod
    def _prepare(self, *args: Any, **kwargs: Any) -> Prepared[R]:
        """The job for these arguments. Wrong arguments raise here, so that nothing is sent."""

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Runs a job and waits for its result."""
        if futures_in(args, kwargs):
            return self.submit(*args, **kwargs).result()
        task, finish = self._prepare(*args, **kwargs)
        return self._fleet._call(task, finish)

    def submit(self, *args: Any, **kwargs: Any) -> Future[R]:
        """Submits a job and returns its future at once. Waits only while too many jobs are open.

        Arguments may be futures. The job is then submitted when these have ended.
        """
        if needs := futures_in(args, kwargs):
            return self._fleet._submit_after(needs, self, args, kwargs)
        task, finish = self._prepare(*args, **kwargs)
        return self._fleet._submit(task, finish)

    async def asubmit(self, *args: Any, **kwargs: Any) -> Future[R]:
        """Like `submit`, but lets the asyncio loop run while too many jobs are open."""
        import asyncio  # noqa: PLC0415

        if futures_in(args, kwargs):
            return self.submit(*args, **kwargs)
        task, finish = self._prepare(*args, **kwargs)
        if self._fleet._has_room(task):
            return self._fleet._submit(task, finish)
        return await asyncio.to_thread(self._fleet._submit, task, finish)

    @abstractmethod
    def lazy(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs as lazy arrays, in the form of the result. Nothing is sent.

        Other kernels take them in place of arrays, and `compute()` runs the jobs that lead to one.
        """

    def detach(self, *args: Any, **kwargs: Any) -> str:
        """Submits a job whose result a later program takes, and returns the job's id once the broker has the job.

        That program has a fleet with the same `client` name, and calls `Fleet.attach`.
        """
        return self._fleet._detach(self._prepare(*args, **kwargs).task)

    def map(self, *inputs: Iterable[Any], **fixed: Any) -> Results[R]:
        """Runs a job for each item of the inputs, like the built-in `map`, and yields the results in order.

        Keyword arguments are the same for all jobs. Small jobs share messages, and jobs are sent ahead of the results
        that the caller takes.
        """
        return self._many(zip(*inputs, strict=False), common_length(inputs), fixed)

    def starmap(self, inputs: Iterable[Iterable[Any]], **fixed: Any) -> Results[R]:
        """Like `map`, with each job's arguments as a tuple."""
        return self._many(inputs, common_length([inputs]), fixed)

    def options(self, **changes: Any) -> Self:
        """A copy whose jobs have these options: pool, priority, name, labels, time_limit, queue_limit, keep, requires.

        Times are seconds, or texts such as ``"30s"``. Labels are added to the present ones. The
        option `id` is a UUID for one job.
        """
        return self._with_options(self._options.replace(**changes))

    def _with_options(self, options: Options) -> Self:
        changed = copy.copy(self)
        changed._options = options
        return changed

    def _many(self, inputs: Iterable[Iterable[Any]], length: int | None, fixed: dict[str, Any]) -> Results[R]:
        if self._options.id is not None:
            raise ValueError("the option id names one job, so map and starmap can not use it; call submit for each job")

        def submit(jobs: Sequence[Prepared[R]]) -> list[Future[R]]:
            return self._fleet._submit_many([job.task for job in jobs], [job.finish for job in jobs])

        return Results((self._prepare(*each, **fixed) for each in inputs), submit, length)
