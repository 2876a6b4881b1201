"""`%gpu_timeit`: how long a statement's jobs take on the device."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpufleet._scope import entered
from gpufleet._task import Options
from gpufleet.notebook._meter import Meter
from gpufleet.notebook._options import CellError
from gpufleet.notebook._view import STEPS, duration, steps, view_of

__all__ = ["Measured", "measure"]

RUNS = 7


class _Steps(Meter):
    """Adds up the steps of the jobs of one run."""

    def __init__(self) -> None:
        super().__init__(Options())
        self.seconds: dict[str, float] = dict.fromkeys(STEPS, 0.0)

    def ended(self, future: Any) -> None:
        if timings := view_of(future).timings:
            for step, seconds in steps(timings).items():
                self.seconds[step] += seconds
        super().ended(future)


@dataclass
class Measured:
    """The times of the runs, in seconds."""

    jobs: int
    is_emulated: bool
    steps: dict[str, list[float]] = field(repr=False)

    @property
    def kernel(self) -> list[float]:
        return self.steps["kernel"]

    def __repr__(self) -> str:
        kernel = self.kernel
        spread = duration(statistics.stdev(kernel)) if len(kernel) > 1 else "0 µs"
        others = ", ".join(f"{step} {duration(statistics.mean(self.steps[step]))}" for step in STEPS[:-1])
        device = " on the EMULATED device" if self.is_emulated else ""
        jobs = f"{self.jobs} job{'s' * (self.jobs != 1)} each"
        return (
            f"kernels {duration(statistics.mean(kernel))} ± {spread} (mean ± std. dev. of {len(kernel)} runs, {jobs})"
            f"{device}\n{others}"
        )


def measure(statement: Callable[[], object], runs: int) -> Measured:
    """Runs a statement once to compile its kernels and fill caches, and then measures it."""
    _run(statement)
    found = [_run(statement) for _ in range(runs)]
    times = {step: [run.seconds[step] for run in found] for step in STEPS}
    return Measured(found[-1].jobs, found[-1].is_emulated, times)


def _run(statement: Callable[[], object]) -> _Steps:
    meter = _Steps()
    with entered(meter):
        statement()
        meter.wait()
    if not meter.jobs:
        raise CellError("the statement submits no job")
    if meter.states.keys() - {"succeeded"}:
        raise CellError(f"not all jobs of the statement succeeded: {meter}")
    return meter
