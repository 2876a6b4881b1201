"""An interrupt of a cell cancels the jobs for which the cell waited and those that it submitted."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any
from weakref import WeakSet

from gpufleet._errors import CancelError
from gpufleet._future import Future
from gpufleet.notebook._cancel import cancel_jobs, open_jobs, waited_for

__all__ = ["Interrupts"]

WAKE_SECONDS = 0.25
"""An idle loop of asyncio sees an interrupt after this time. Jupyter's kernel does not wake it."""


class Interrupts:
    """Follows the cells of a notebook."""

    def __init__(self, shell: Any) -> None:
        self._earlier: WeakSet[Future[Any]] = WeakSet()
        self._wake: asyncio.TimerHandle | None = None
        shell.events.register("pre_run_cell", self.before)
        shell.events.register("post_run_cell", self.after)

    def before(self, info: object = None) -> None:
        """Notes which jobs are open and not the cell's."""
        self._earlier = WeakSet(open_jobs())
        # A shell without a loop needs nothing.
        with contextlib.suppress(RuntimeError):
            self._keep_awake(asyncio.get_running_loop())

    def after(self, result: Any) -> None:
        """Without a result, the interrupt ended an `await`."""
        if self._wake is not None:
            self._wake.cancel()
        error = None if result is None else result.error_in_exec
        if result is None or isinstance(error, KeyboardInterrupt):
            self._cancel(error)

    def _cancel(self, error: BaseException | None) -> None:
        jobs = {future for future in open_jobs() if future not in self._earlier}
        waited = set() if error is None else waited_for(error.__traceback__)
        try:
            cancelled = cancel_jobs(jobs | waited)
        except CancelError as problem:
            print(f"The jobs of the cell were not cancelled: {problem}")
            return
        if cancelled:
            print(f"Cancelled {cancelled} job{'s' * (cancelled != 1)}.")

    def _keep_awake(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wake = loop.call_later(WAKE_SECONDS, self._keep_awake, loop)
