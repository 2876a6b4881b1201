"""Backpressure: bounds the jobs that a connection has open."""

from __future__ import annotations

import threading

from gpufleet._changes import Changes

JOBS_MAX = 100_000
"""The maximum number of jobs without an outcome."""
BYTES_MAX = 256 << 20
"""The maximum size of inputs that the broker has not confirmed, in bytes."""


class Window:
    """The number of open jobs and of their bytes. Callers wait while there are too many.

    A single job may exceed the limit of bytes if no other job is open, because it could never be sent otherwise.
    """

    def __init__(self, jobs_max: int = JOBS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._jobs_max = jobs_max
        self._bytes_max = bytes_max
        self._jobs = 0
        self._bytes = 0
        self._changes = Changes()
        self.exempt: int | None = None
        """The id of the thread that never waits, because it makes the room."""

    def enter(self, jobs: int, size: int) -> None:
        """Waits for room and takes it."""
        with self._changes.lock:
            if not self._has_room(jobs, size) and threading.get_ident() != self.exempt:
                self._changes.wait_for(lambda: self._has_room(jobs, size))
            self._jobs += jobs
            self._bytes += size

    def has_room(self, jobs: int, size: int) -> bool:
        """Returns whether a caller would get room at once."""
        with self._changes.lock:
            return self._has_room(jobs, size)

    def leave(self, jobs: int, size: int) -> None:
        """Returns room."""
        with self._changes.lock:
            self._jobs -= jobs
            self._bytes -= size
            self._changes.notify()

    def _has_room(self, jobs: int, size: int) -> bool:
        fits_jobs = self._jobs == 0 or self._jobs + jobs <= self._jobs_max
        fits_bytes = self._bytes == 0 or self._bytes + size <= self._bytes_max
        return fits_jobs and fits_bytes
