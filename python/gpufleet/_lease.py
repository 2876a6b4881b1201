"""The lease of a session: how it is requested, and what happens to it until its end."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from gpufleet import _amounts, _core, _driver, _errors
from gpufleet._connection import error_of

if TYPE_CHECKING:
    from gpufleet._connection import Connection
    from gpufleet._task import Task

__all__ = ["AGAIN", "Lease", "request"]

PATIENCE_SECONDS = 1.0
"""A shorter wait for a worker is not worth a line."""
LIMIT_PASSED_SECONDS = 10.0
"""A worker ends a job at its queue limit. After this time beyond the limit, no worker serves the pool."""
AGAIN = "a process has one session: start the program again, or restart the notebook's kernel"


class Lease:
    """An open lease, and the thread that prints what happens to it."""

    def __init__(self, core: _core.Session) -> None:
        self.core = core
        self.ended: str | None = None
        """Why the lease has ended, if the fleet has ended it."""
        self._changed = _driver.Changed()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._print_news, name="gpufleet-session", daemon=True)
        self._thread.start()

    @property
    def is_inherited(self) -> bool:
        """Whether this process was forked from the process that has the lease."""
        return self._pid != os.getpid()

    def use(self) -> None:
        """Makes the device that of this process. Raises `RuntimeError`."""
        variables = dict(self.core.environment)
        self._changed.set(_driver.NUMBA, variables[_driver.NUMBA])
        _driver.start(variables[_driver.NUMBA], variables[_driver.SOCKET])

    def end(self, code: int) -> _core._SessionEnd | None:
        """Ends the lease with the exit code of the program. None if it was ended before."""
        end = self.core.finish(code)
        self._thread.join()
        self._changed.undo()
        return end

    def _print_news(self) -> None:
        """Prints what happens to the lease until its end. It has a thread of its own."""
        while (news := self.core.next()) is not None:
            line, is_end = news
            if is_end:
                self.ended = line
            _print(f"{line}; {AGAIN}" if is_end else line)


def request(connection: Connection, task: Task, library: str, gives_up: Callable[[], bool]) -> Lease:
    """Submits the job of a session, and waits for a worker. Cancels the job if nothing waits for it any more."""
    job = _core.Job(task, connection.pool)
    waiting = _Waiting(job.id, task.options.pool or connection.pool, task.options.queue_limit, gives_up)
    try:
        opened = connection.open_session(job, library, waiting)
        if opened is None:
            waiting.raise_problem()
    except _errors.FleetClosed:
        raise
    except BaseException:
        _cancel(connection, job.id)
        raise
    if isinstance(opened, tuple):
        raise error_of(job.id, opened)
    return Lease(opened)


class _Waiting:
    """Says when the wait for a worker is over, and tells the user how to learn why it takes long."""

    def __init__(self, job_id: str, pool: str, limit: float | None, gives_up: Callable[[], bool]) -> None:
        self._job_id = job_id
        self._pool = pool
        self._limit = limit
        self._gives_up = gives_up
        self._begun = time.monotonic()
        self._has_told = False

    def __call__(self) -> bool:
        waited = time.monotonic() - self._begun
        if waited > PATIENCE_SECONDS and not self._has_told:
            self._has_told = True
            _print(f'waiting in pool {self._pool}; "gpufleet why {self._job_id}" tells the reason')
        return self._gives_up() or (self._limit is not None and waited > self._limit + LIMIT_PASSED_SECONDS)

    def raise_problem(self) -> NoReturn:
        if self._gives_up():
            raise _errors.JobCancelled(f"the request for session {self._job_id} was cancelled", self._job_id)
        limit = _amounts.time(self._limit or 0)
        raise _errors.QueueLimitReached(
            f"no worker of pool {self._pool} answered within the queue limit of {limit}; check with `gpufleet workers`"
            f" that a worker serves the pool with sessions: --pool {self._pool}:sessions=1",
            self._job_id,
        )


def _cancel(connection: Connection, job_id: str) -> None:
    try:
        connection.cancel([job_id])
    except _errors.GpufleetError as problem:
        _print(f"the session was not cancelled: {problem}; try again: gpufleet cancel {job_id}")


def _print(line: str) -> None:
    print(f"gpufleet: {line}", file=sys.stderr, flush=True)
