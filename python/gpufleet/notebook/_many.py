"""What people see of many jobs: how many are in which state, and the jobs that matter most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from gpufleet._future import Future
from gpufleet.notebook._view import View, state_of, view_of

if TYPE_CHECKING:
    from gpufleet._batch import Batch
    from gpufleet._results import Results

__all__ = ["STATES", "ManyView", "view_of_batch", "view_of_results"]

ROWS_MAX = 20
"""The most jobs in a table. People see at a glance no more, and the page stays small."""
STATES = ("failed", "cancelled", "open", "succeeded")
"""Jobs are listed in this order of their states."""


@dataclass(frozen=True, slots=True)
class ManyView:
    """Many jobs at one moment."""

    title: str
    counts: Counter[str]
    rows: tuple[tuple[int, View], ...]
    """Some of the jobs, each with its index."""
    unsent: int | None = 0
    """Jobs that are not sent yet. None if their number is unknown."""
    emulated: int = 0
    """Jobs that ran on the emulated device."""
    kernel_seconds: float | None = None
    note: str | None = None
    """Why no more jobs are sent."""

    def __repr__(self) -> str:
        parts = [f"{self.title}: {self.summary}"]
        if self.emulated:
            parts.append(f"{self.emulated} EMULATED")
        return f"<{', '.join(parts)}>"

    def _repr_html_(self) -> str:
        from gpufleet.notebook._html import many  # noqa: PLC0415

        return many(self)

    @property
    def summary(self) -> str:
        """The number of jobs in each state."""
        parts = [f"{self.counts[state]:,} {state}" for state in reversed(STATES) if self.counts[state]]
        if self.unsent is None:
            parts.append("more to send")
        elif self.unsent:
            parts.append(f"{self.unsent:,} to send")
        return ", ".join(parts) or "no jobs"

    @property
    def hidden(self) -> int:
        """The number of jobs that are not among the rows."""
        return self.counts.total() - len(self.rows)


def view_of_results(results: Results[Any]) -> ManyView:
    """The view of what `map` returned. Of the jobs whose results were taken, only the failed ones are listed."""
    ahead = list(enumerate(chain.from_iterable(results._ahead), results._taken))
    counts = Counter(state_of(future) for _, future in ahead)
    counts["failed"] += results._failed
    counts["succeeded"] += results._succeeded
    unsent = None if results._length is None else max(results._length - results._taken - len(ahead), 0)
    if results._refused is not None or results._is_exhausted:
        unsent = 0
    return ManyView(
        title="gpufleet.Results",
        counts=counts,
        rows=_rows([*results._failures, *ahead]),
        unsent=unsent,
        emulated=results._emulated + _emulated(future for _, future in ahead),
        note=None if results._refused is None else f"an input is refused: {results._refused}",
    )


def view_of_batch(batch: Batch) -> ManyView:
    """The view of a batch."""
    futures = batch.futures
    return ManyView(
        title=f"gpufleet.Batch {batch.id}",
        counts=Counter(map(state_of, futures)),
        rows=_rows(list(enumerate(futures))),
        emulated=_emulated(futures),
        kernel_seconds=batch.kernel_seconds,
    )


def _rows(jobs: list[tuple[int, Future[Any]]]) -> tuple[tuple[int, View], ...]:
    listed = sorted(jobs, key=lambda job: (STATES.index(state_of(job[1])), job[0]))[:ROWS_MAX]
    return tuple((index, view_of(future)) for index, future in listed)


def _emulated(futures: Iterable[Future[Any]]) -> int:
    return sum(future._report is not None and future._report.is_emulated for future in futures)
