"""Batches: jobs that belong together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gpufleet._errors import CancelError

if TYPE_CHECKING:
    from gpufleet._fleet import Fleet
    from gpufleet._future import Future
    from gpufleet._task import Options

__all__ = ["Batch", "current_batch"]

LABEL = "batch"

_current: ContextVar[Batch | None] = ContextVar("gpufleet_batch", default=None)


class Batch:
    """The jobs that a `with` block submits. `Fleet.batch` makes a batch.

    The batch has the jobs that the block's thread, or its asyncio task, submits to the fleet. They get the label
    ``batch``, and the options of the batch unless their kernels have their own. The end of the block waits for the
    jobs, and does not raise their exceptions. An exception that leaves the block cancels them.
    """

    def __init__(self, fleet: Fleet, options: Options) -> None:
        self._id = os.urandom(8).hex()
        self._fleet = fleet
        self._options = options.replace(labels={LABEL: self._id})
        self._futures: list[Future[Any]] = []
        self._outer: Token[Batch | None] | None = None
        self._parent: Batch | None = None
        self._inner: list[Batch] = []
        """The batches of blocks inside this block. Their jobs have another value of the label."""

    @property
    def id(self) -> str:
        """The value of the label ``batch``."""
        return self._id

    @property
    def futures(self) -> tuple[Future[Any], ...]:
        """The futures of the jobs, in the order of their submission."""
        return tuple(self._futures)

    @property
    def kernel_seconds(self) -> float:
        """The time in seconds for which the kernels of the ended jobs ran."""
        timings = (future.timings for future in self._futures)
        return sum(each.kernel for each in timings if each is not None)

    def results(self) -> list[Any]:
        """Waits for all jobs and returns their results. Raises the exception of the first job that failed."""
        return [future.result() for future in self._futures]

    def wait(self) -> None:
        """Waits until all jobs have ended, successfully or not."""
        for future in self._futures:
            future._wait()

    def cancel(self) -> None:
        """Orders the workers to cancel all jobs of the batch. Raises `CancelError` if the broker does not take the
        order.
        """
        for inner in self._inner:
            inner.cancel()
        for future in self._futures:
            future._expects_cancellation = True
        self._fleet.cancel(labels={LABEL: self._id})
        for future in self._futures:
            future._end_cancelled()

    def __len__(self) -> int:
        return len(self._futures)

    def __iter__(self) -> Iterator[Future[Any]]:
        return iter(self.futures)

    def __enter__(self) -> Self:
        if self._outer is not None:
            raise RuntimeError("the batch has a block already; make another batch")
        self._parent = current_batch(self._fleet)
        if self._parent is not None:
            self._options = self._options.within(self._parent._options)
            self._parent._inner.append(self)
        self._outer = _current.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._outer is not None
        _current.reset(self._outer)
        if error is None:
            self.wait()
        elif self._fleet._cancels_after(error) and not self._fleet.is_closed:
            try:
                self.cancel()
            except CancelError as problem:
                error.add_note(f"the jobs of the batch were not cancelled: {problem}")

    def __repr__(self) -> str:
        return f"<gpufleet.Batch {self._id} of {len(self)} jobs>"

    def _repr_html_(self) -> str:
        from gpufleet.notebook._many import view_of_batch  # noqa: PLC0415

        return view_of_batch(self)._repr_html_()

    def _options_of(self, options: Options) -> Options:
        return options.within(self._options)

    def _add(self, futures: list[Future[Any]]) -> None:
        self._futures += futures
        if self._parent is not None:
            self._parent._add(futures)


def current_batch(fleet: Fleet) -> Batch | None:
    """Returns the batch of the innermost block around the caller, if it is a batch of this fleet."""
    batch = _current.get()
    return batch if batch is not None and batch._fleet is fleet else None
