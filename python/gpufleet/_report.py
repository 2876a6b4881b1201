"""The measurements of a worker."""

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
    """Whether the device is the emulated one and not a GPU."""


@dataclass(frozen=True, slots=True)
class Timings:
    """The duration of each step of a job in seconds, by the worker's clock except for `queue` and `round_trip`."""

    round_trip: float
    """From the submission until the reply has arrived, by this process's clock."""
    queue: float
    """From the submission until the worker has the job."""
    wait: float
    """From then until the start in the executor, without fetching and compiling."""
    fetch: float
    """Reading inputs from the blob store and copying them to the device."""
    compile: float
    load: float
    """Loading the program into the device."""
    copy_in: float
    launches: tuple[float, ...]
    """Each launch of the job, including its repeats."""
    copy_out: float
    total: float
    """From the start in the executor until the end."""
    device_bytes_peak: int
    module_cached: bool
    """Whether the program was compiled or loaded before."""

    @property
    def kernel(self) -> float:
        """The time of all launches together, in seconds."""
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
