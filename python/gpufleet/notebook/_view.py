"""What people see of a job, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures._base import FINISHED
from dataclasses import dataclass, field
from typing import Any

from gpufleet._errors import GpufleetError
from gpufleet._future import Future
from gpufleet._program import ProgramFuture
from gpufleet._report import RanOn, Timings

__all__ = ["STEPS", "View", "duration", "state_of", "steps", "view_of"]

STEPS = ("queue", "fetch", "compile", "copy", "kernel")


@dataclass(frozen=True, slots=True)
class View:
    """A job at one moment."""

    job_id: str
    title: str
    state: str
    """open, succeeded, failed or cancelled."""
    pool: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    note: str | None = None
    """How far the job is, or why it failed."""
    timings: Timings | None = None
    ran_on: RanOn | None = None

    def __repr__(self) -> str:
        parts = [f"{self.title}: {self.state}"]
        if self.ran_on:
            parts.append(("EMULATED " if self.ran_on.emulated else "") + self.ran_on.device_name)
        if self.timings:
            parts += [f"{step} {duration(seconds)}" for step, seconds in steps(self.timings).items() if seconds]
        if self.note:
            parts.append(self.note)
        return ", ".join(parts)

    def _repr_html_(self) -> str:
        from gpufleet.notebook._html import card  # noqa: PLC0415

        return card(self)


def view_of(future: Future[Any]) -> View:
    """The view of a job."""
    options = future._options
    state = state_of(future)
    note = None
    if state == "failed":
        note = str(future.exception())
    elif state == "open" and future._course is not None and future._course.latest is not None:
        note = str(future._course.latest)
    elif isinstance(future, ProgramFuture) and future.timings and future.timings.total:
        # The fleet measures no steps of it.
        note = f"ran for {duration(future.timings.total)}"
    return View(
        job_id=_id_of(future),
        title=options.name or "job",
        state=state,
        pool=options.pool or "default",
        labels=options.labels,
        note=note,
        timings=future.timings,
        ran_on=future.ran_on,
    )


def steps(timings: Timings) -> dict[str, float]:
    """The times of a job in the order in which they passed, in seconds."""
    times = (
        timings.queue + timings.wait,
        timings.fetch,
        timings.compile + timings.load,
        timings.copy_in + timings.copy_out,
        timings.kernel,
    )
    return dict(zip(STEPS, times, strict=True))


def duration(seconds: float) -> str:
    """A time with a unit that fits.

    >>> duration(0.00042), duration(0.0123), duration(2), duration(75)
    ('420 µs', '12.3 ms', '2.0 s', '75 s')
    """
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds:.0f} s"


def _id_of(future: Future[Any]) -> str:
    try:
        return future.job_id
    except GpufleetError:
        return "(needs other jobs first)"


def state_of(future: Future[Any]) -> str:
    """open, succeeded, failed or cancelled."""
    if not future.done():
        return "open"
    # Without the future's condition, which would have to be made.
    if future._state != FINISHED:
        return "cancelled"
    return "succeeded" if future._exception is None else "failed"
