"""In the kernel of a notebook that papermill runs: labels for the jobs of each cell, and what they took.

The engine sends the calls before and after each cell.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

from gpufleet._scope import entered
from gpufleet._task import Options
from gpufleet.notebook._meter import Meter

__all__ = ["begin", "report"]

_meters: dict[str, Meter] = {}
_current = ExitStack()


def begin(cell: str, labels: dict[str, str]) -> None:
    """The jobs that are submitted from here on belong to this cell."""
    _current.close()
    _meters[cell] = Meter(Options(labels={**labels, "cell": cell}))
    _current.enter_context(entered(_meters[cell]))


def report() -> str:
    """What the jobs of each cell took, as JSON. Jobs may end later than their cell."""
    return json.dumps({cell: _summary(meter) for cell, meter in _meters.items() if meter.jobs})


def _summary(meter: Meter) -> dict[str, Any]:
    return {
        "jobs": meter.jobs,
        **meter.states,
        "queue_seconds": round(meter.queue_seconds, 6),
        "kernel_seconds": round(meter.kernel_seconds, 6),
        "emulated": meter.is_emulated,
    }
