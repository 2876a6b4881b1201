"""How far a running job is. A worker says it about once a second, for jobs that run for longer than a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from gpufleet._printed import Transcript, in_notebook

if TYPE_CHECKING:
    from gpufleet._core import _Update

__all__ = ["Count", "Course", "Progress", "text_bar", "time_passed"]

BAR_COLUMNS = 10
"""The characters of a bar."""
LEFT_MAX = 1e6
"""The longest estimate in seconds."""
FRESH_SECONDS = 10.0
"""Older progress says nothing about the present, because workers send it every second."""

_STAGES = {"fetching": "fetching inputs", "running": "kernels", "storing": "storing outputs"}
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))


class Count(NamedTuple):
    """A part of a whole, such as 312 of 1000 launches.

    >>> Count(312, 1000).fraction
    0.312
    """

    done: int
    total: int

    @property
    def fraction(self) -> float:
        """Between 0 and 1."""
        return self.done / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job was at one moment. `str` returns it as one line.

    >>> str(Progress("7", 1, "running", 41.2, 90.4, launches=Count(312, 1000)))
    'kernels 312/1000 launches · 41 s · about 90 s left'
    """

    job_id: str
    attempt: int
    stage: str
    """``fetching`` the inputs from the blob store, ``running`` the kernels, or ``storing`` the outputs."""
    elapsed: float
    """The time in seconds since an executor took the job."""
    remaining: float | None
    """An estimate of the time in seconds until the end of the stage. None if it is unknown."""
    launches: Count | None = None
    """The finished launches. Repeats count singly."""
    counter: Count | None = None
    """The value of the job's `ProgressCounter`."""
    bytes: Count | None = None
    """The bytes of arrays that have moved in this stage."""
    printed: str = ""
    """What the kernels, or the host program, printed since the progress before."""

    @property
    def count(self) -> Count | None:
        """What is done in this stage: bytes while arrays move, else steps of the counter, else launches.

        None for a job of one launch without a counter, because its launch is either done or not.
        """
        count = self.bytes if self.stage in ("fetching", "storing") else self.counter or self.launches
        return count if count is not None and count.total > 1 else None

    @property
    def fraction(self) -> float | None:
        """The share of the stage that is done, between 0 and 1. None if it is unknown."""
        count = self.count
        return None if count is None else count.fraction

    def __str__(self) -> str:
        return self._line("")

    def _line(self, bar: str) -> str:
        """Returns a line with a bar before the count."""
        words = [f"attempt {self.attempt}:"] if self.attempt > 1 else []
        words.append(self._doing)
        if self.count is not None:
            words += [bar, self._amount(self.count)] if bar else [self._amount(self.count)]
        parts = [" ".join(words), time_passed(self.elapsed)]
        if self.remaining:
            parts.append(f"about {_time_left(self.remaining)} left")
        return " · ".join(parts)

    @property
    def _doing(self) -> str:
        return _STAGES.get(self.stage, self.stage)

    def _amount(self, count: Count) -> str:
        if count is self.bytes:
            unit, name = next(size for size in _SIZES if count.total >= size[0])
            digits = 0 if unit == 1 else 1
            return f"{count.done / unit:.{digits}f}/{count.total / unit:.{digits}f} {name}"
        return f"{count.done}/{count.total} {'steps' if count is self.counter else 'launches'}"


class Course:
    """The progress of one job so far."""

    __slots__ = (
        "_kind",
        "_received",
        "_run",
        "_sequence",
        "_stage_ms",
        "_told_ms",
        "callbacks",
        "latest",
        "transcript",
    )

    def __init__(self, kind: type[Progress] = Progress) -> None:
        self._kind = kind
        self.latest: Progress | None = None
        self.callbacks: tuple[Callable[[Progress], object], ...] = ()
        self.transcript: Transcript | None = None
        """What the kernels have printed, for the cell of a notebook that waits for the job."""
        self._run = (0, 0)
        """The attempt and its start. The broker may deliver a task twice under one number."""
        self._received = 0.0
        self._sequence = -1
        """The number of the latest message of the run."""
        self._told_ms = 0
        self._stage_ms = 0
        """When the latest message was made, and when its stage began, by the worker's clock."""

    @property
    def is_fresh(self) -> bool:
        """Whether the latest progress came in the last seconds."""
        return self.latest is not None and time.monotonic() - self._received < FRESH_SECONDS

    @property
    def current(self) -> Progress | None:
        """The latest progress, for a display."""
        return self.latest

    def take(self, update: _Update) -> Progress | None:
        """Returns the progress of a message, unless it is older than the latest."""
        job_id, attempt, sequence, at_ms, started_ms, stage, launches, counter, moved, printed = update
        run = (attempt, started_ms)
        if (run, sequence) <= (self._run, self._sequence):
            return None
        if self.latest is None or run != self._run:
            self._stage_ms, is_next = started_ms, False
        else:
            is_next = sequence == self._sequence + 1
            if stage != self.latest.stage:
                self._stage_ms = self._told_ms
        self._run, self._sequence, self._told_ms = run, sequence, at_ms
        self._received = time.monotonic()
        if printed is not None and in_notebook():
            self.transcript = self.transcript or Transcript()
            self.transcript.add(run, *printed, is_next=is_next)
        progress = self._kind(
            job_id,
            attempt,
            stage,
            elapsed=max(at_ms - started_ms, 0) / 1000,
            remaining=None,
            launches=_count(launches),
            counter=_count(counter),
            bytes=_count(moved),
            printed="" if printed is None else printed[1],
        )
        remaining = _remaining(progress.count, max(at_ms - self._stage_ms, 0) / 1000)
        self.latest = progress if remaining is None else replace(progress, remaining=remaining)
        return self.latest


def text_bar(fraction: float) -> str:
    """Returns a bar of characters.

    >>> text_bar(0.312)
    '███░░░░░░░'
    """
    done = int(fraction * BAR_COLUMNS)
    return "█" * done + "░" * (BAR_COLUMNS - done)


def time_passed(seconds: float) -> str:
    """Returns a time, rounded down.

    >>> time_passed(41.7), time_passed(160), time_passed(11_000)
    ('41 s', '2 min 40 s', '3 h 3 min')
    """
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _time_left(seconds: float) -> str:
    """Returns an estimate of a time, which needs few digits.

    >>> _time_left(0.1), _time_left(88), _time_left(160), _time_left(11_000)
    ('1 s', '90 s', '3 min', '3 h')
    """
    if seconds < 10:
        return f"{max(round(seconds), 1)} s"
    if seconds < 120:
        return f"{round(seconds / 5) * 5} s"
    return f"{round(seconds / 60)} min" if seconds < 7200 else f"{round(seconds / 3600)} h"


def _count(pair: tuple[int, int] | None) -> Count | None:
    return None if pair is None else Count(*pair)


def _remaining(count: Count | None, seconds: float) -> float | None:
    """Estimates the time for the rest, if it goes on as in these seconds."""
    if count is None or not count.done:
        return None
    return min(seconds * (count.total - count.done) / count.done, LEFT_MAX)
