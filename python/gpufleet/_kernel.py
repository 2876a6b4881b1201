"""The common parts of all kernels: call, submit, map."""

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
    """A job, and the function that makes the result of its outputs."""

    task: Task
    finish: Callable[[Outputs], R]


class Kernel(ABC, Generic[R]):
    """A kernel of a fleet, with the options of its jobs. Subclasses convert arguments to tasks."""

    def __init__(self, fleet: Fleet, options: Options) -> None:
        self._fleet = fleet
        self._options = options

    @abstractmethod
    def _prepare(self, *args: Any, **kwargs: Any) -> Prepared[R]:
        """Returns the job for these arguments. Wrong arguments raise here, so that nothing is sent."""

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Runs a job and waits for its result. Raises `JobFailed` if the job fails, and `SubmitError` if it is not
        submitted.

        Arguments may be futures, whose results it waits for.
        """
        if futures_in(args, kwargs):
            return self.submit(*args, **kwargs).result()
        task, finish = self._prepare(*args, **kwargs)
        return self._fleet._call(task, finish)

    def submit(self, *args: Any, **kwargs: Any) -> Future[R]:
        """Submits a job and returns its future at once. It waits only while too many jobs are open.

        Wrong arguments raise here; other errors are raised by the future. Arguments may be futures. The job is then
        submitted when these have ended.
        """
        if needs := futures_in(args, kwargs):
            return self._fleet._submit_after(needs, self, args, kwargs)
        task, finish = self._prepare(*args, **kwargs)
        return self._fleet._submit(task, finish)

    async def asubmit(self, *args: Any, **kwargs: Any) -> Future[R]:
        """Submits a job like `submit`, but lets the asyncio loop run while too many jobs are open."""
        import asyncio  # noqa: PLC0415

        if futures_in(args, kwargs):
            return self.submit(*args, **kwargs)
        task, finish = self._prepare(*args, **kwargs)
        if self._fleet._has_room(task):
            return self._fleet._submit(task, finish)
        return await asyncio.to_thread(self._fleet._submit, task, finish)

    @abstractmethod
    def lazy(self, *args: Any, **kwargs: Any) -> Any:
        """Describes a job without running it, and returns its outputs as lazy arrays. Nothing is sent.

        Other kernels take lazy arrays in place of arrays. `compute()` runs the jobs that are needed for one.
        """

    def detach(self, *args: Any, **kwargs: Any) -> str:
        """Submits a job for a later program, and returns the job's id once the broker has the job.

        The later program makes a fleet with the same `client` name and calls `Fleet.attach`. Raises `SubmitError`.
        """
        return self._fleet._detach(self._prepare(*args, **kwargs).task)

    def map(self, *inputs: Iterable[Any], **fixed: Any) -> Results[R]:
        """Runs a job for each item of the inputs, like the built-in `map`, and yields the results in order.

        Keyword arguments are the same for all jobs. Small jobs share messages, and jobs are submitted before you ask
        for their results.
        """
        return self._many(zip(*inputs, strict=False), common_length(inputs), fixed)

    def starmap(self, inputs: Iterable[Iterable[Any]], **fixed: Any) -> Results[R]:
        """Runs a job for each tuple of arguments, and yields the results in order. Otherwise it is like `map`."""
        return self._many(inputs, common_length([inputs]), fixed)

    def options(self, **changes: Any) -> Self:
        """Returns a copy of the kernel whose jobs have these options. Raises `TypeError` for an unknown option.

        `pool` is by default that of ``GPUFLEET_POOL``, else ``default``. `priority` is ``"high"``, ``"normal"`` (the
        default) or ``"low"``. `name` and `labels` appear in the history; labels are added to those of the kernel.
        `time_limit` bounds the time on the device; by default it is that of the pool, else 10 minutes. `queue_limit`
        bounds the time in the queue. `keep` is how long the outputs can be fetched, by default not at all. `attempts`
        is the maximum number of attempts, by default that of the pool, else 3. `requires` may have a ``device`` and a
        ``compute_capability``. `on_progress` is a function that is called with each `Progress` of each job, as by
        `Future.add_progress_callback`.

        Times are seconds, or texts such as ``"30s"``. `id` is the UUID of a single job, so `map` and `starmap` refuse
        it.
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
