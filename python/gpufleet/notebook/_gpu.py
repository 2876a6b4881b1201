"""`with gpu(...)`: options, labels and cancellation for the jobs of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpufleet._scope import entered
from gpufleet._task import Options
from gpufleet.notebook._cancel import cancel_jobs
from gpufleet.notebook._meter import Meter

__all__ = ["gpu"]


@contextmanager
def gpu(**options: Any) -> Iterator[Meter]:
    """Gives the jobs that are submitted in the block these options, such as ``pool``, ``time_limit`` and ``labels``.

    Options of a kernel win over them. The end of the block waits for its jobs and prints the GPU time that they used.
    An exception or an interrupt cancels them. It reserves nothing: other programs' jobs run on the same devices.
    """
    meter = Meter(Options().replace(**options))
    try:
        with entered(meter):
            yield meter
        meter.wait()
    except BaseException:
        cancel_jobs(meter.open())
        # A worker may have answered first: then another thread counts the job.
        meter.wait()
        raise
    finally:
        print(meter)
