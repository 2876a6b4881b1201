"""What people see of the jobs of a cell that waits, as plain data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gpufleet._progress import Progress, text_bar, time_passed
from gpufleet.notebook._many import STATES

__all__ = ["Waiting"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The jobs of a cell at one moment: how many have ended, and how far one of them is."""

    counts: Counter[str]
    """The number of jobs in each state."""
    seconds: float
    """The time since the first of them was submitted."""
    title: str = "job"
    """The job whose progress or note it shows."""
    progress: Progress | None = None
    note: str | None = None
    """Why the job waits."""

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def worst(self) -> str:
        """The state that matters most."""
        return next((state for state in STATES if self.counts[state]), "open")

    @property
    def summary(self) -> str:
        """How many of several jobs are done. Empty for a single job."""
        if self.total < 2:
            return ""
        bad = "".join(f", {self.counts[state]:,} {state}" for state in ("failed", "cancelled") if self.counts[state])
        return f"{self.total - self.counts['open']:,} of {self.total:,} jobs done{bad} · {time_passed(self.seconds)}"

    @property
    def fraction(self) -> float | None:
        """The length of the bar."""
        return None if self.progress is None else self.progress.fraction

    def job(self, bar: str = "") -> str:
        """How far the job is, in one line with a bar. Empty if several jobs have ended."""
        if self.progress is not None:
            return f"{self.title}: {self.progress._line(bar)}"
        if self.note is not None:
            return f"{self.title}: {self.note}"
        return f"{self.title}: {self.worst} · {time_passed(self.seconds)}" if self.total < 2 else ""

    def __repr__(self) -> str:
        bar = "" if self.fraction is None else text_bar(self.fraction)
        return "\n".join(line for line in (self.summary, self.job(bar)) if line)

    def _repr_html_(self) -> str:
        from gpufleet.notebook._html import waiting  # noqa: PLC0415

        return waiting(self)
