"""Counts jobs and the time that they take on devices."""

from __future__ import annotations

import threading
from typing import Any

from gpufleet._dependent import Dependent
from gpufleet._future import Future
from gpufleet._program import ProgramFuture
from gpufleet._scope import Scope
from gpufleet._task import Options
from gpufleet.notebook._view import duration, view_of

__all__ = ["Meter"]


class Meter(Scope):
    """The jobs that were submitted while it was an open scope."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        # Callbacks come in other threads.
        self._changed = threading.Condition()
        self._open: dict[Future[Any], None] = {}
        self.states: dict[str, int] = {}
        self.queue_seconds = 0.0
        self.kernel_seconds = 0.0
        self.is_emulated = False

    @property
    def jobs(self) -> int:
        return len(self._open) + sum(self.states.values())

    def began(self, future: Future[Any]) -> None:
        with self._changed:
            self._open[future] = None
        future.add_done_callback(self.ended)

    def ended(self, future: Any) -> None:
        """Counts a job. Results are not kept."""
        view = view_of(future)
        is_job = not isinstance(future, Dependent)
        with self._changed:
            del self._open[future]
            # A job that needs others is counted when it is submitted.
            if is_job:
                self.states[view.state] = self.states.get(view.state, 0) + 1
            if view.timings and is_job:
                self.queue_seconds += view.timings.queue + view.timings.wait
                # A program has a device for all of its time.
                is_program = isinstance(future, ProgramFuture)
                self.kernel_seconds += view.timings.total if is_program else view.timings.kernel
            if view.ran_on:
                self.is_emulated |= view.ran_on.emulated
            self._changed.notify_all()

    def wait(self) -> None:
        """Waits until all jobs of this process have ended and are counted."""
        if not self.is_inherited:
            with self._changed:
                self._changed.wait_for(lambda: not self._open)

    def open(self) -> list[Future[Any]]:
        if self.is_inherited:
            return []
        with self._changed:
            return list(self._open)

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()) if state != "succeeded")
        device = " on the EMULATED device" if self.is_emulated else ""
        return (
            f"{self.jobs} job{'s' * (self.jobs != 1)}{f' ({counts})' if counts else ''},"
            f" {duration(self.kernel_seconds)} of GPU time{device}"
        )
