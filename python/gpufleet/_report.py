"""What a worker measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpufleet._core import Report


@dataclass(frozen=True, slots=True)
class RanOn:
    """The worker and the device that ran a job."""

    worker: str
    device: int
    device_name: str
    emulated: bool
    """The device was the emulated one, not a GPU."""


@dataclass(frozen=True, slots=True)
class Timings:
    """How long each step of a job took, in seconds. All but `queue` and `round_trip` are by the worker's clock."""

    round_trip: float
    """From the submission to the arrival of the reply, by this process's clock."""
    queue: float
    """From the submission to the worker's receipt."""
    wait: float
    """From the worker's receipt to the start in the executor, without fetching and compiling."""
    fetch: float
    """Bringing inputs from the blob store to the device."""
    compile: float
    load: float
    """Loading the program into the device."""
    copy_in: float
    launches: tuple[float, ...]
    """The launches of the job, each with its repeats."""
    copy_out: float
    total: float
    """From the start in the executor to the end."""
    device_bytes_peak: int
    module_cached: bool
    """The program was compiled or loaded before."""

    @property
    def kernel(self) -> float:
        """All launches together."""
        return sum(self.launches)


def timings_of(report: Report) -> Timings:
    times, launches, peak, cached = report.timings()
    queue, wait, fetch, compile_, load, copy_in, copy_out, total = (time / 1e6 for time in times)
    return Timings(
        round_trip=report.round_trip,
        queue=queue,
        wait=wait,
        fetch=fetch,
        compile=compile_,
        load=load,
        copy_in=copy_in,
        launches=tuple(time / 1e6 for time in launches),
        copy_out=copy_out,
        total=total,
        device_bytes_peak=peak,
        module_cached=cached,
    )


def ran_on_of(report: Report) -> RanOn | None:
    where = report.ran_on()
    return None if where is None else RanOn(*where)
