"""One display that follows a job."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable
from typing import Any

from gpufleet._future import OBSTACLE_SECONDS, Future
from gpufleet.notebook._view import View, duration, view_of

__all__ = ["Live", "follow"]

UPDATE_SECONDS = 0.25
"""The shortest time between two updates."""


class Live:
    """Shows the views of a job, the first and the last at once, and others not more often than every quarter second."""

    def __init__(self, show: Callable[[View, bool], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._show = show
        self._clock = clock
        self._shown: float | None = None

    def update(self, view: View) -> None:
        now = self._clock()
        if self._shown is None or view.state != "open" or now - self._shown >= UPDATE_SECONDS:
            self._show(view, self._shown is not None)
            self._shown = now


def follow(future: Future[Any], live: Live) -> Any:
    """Shows a job until it ends, and returns its result."""
    begin = time.monotonic()
    # Most jobs end before a person could read that they wait.
    while concurrent.futures.wait([future], UPDATE_SECONDS).not_done:
        seconds = time.monotonic() - begin
        why = future._obstacle() if seconds >= OBSTACLE_SECONDS else None
        view = view_of(future, f"waiting for {duration(seconds)}" + (f": {why}" if why else ""))
        # A job that has ended meanwhile is shown once, below.
        if view.state == "open":
            live.update(view)
    live.update(view_of(future))
    return future.result()
