"""Waits for changes that other threads make."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Changes"]


class Changes:
    """A condition like `threading.Condition`, but cheap while no thread waits.

    Callers must hold the lock.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._condition = threading.Condition(self.lock)
        self._waiting = 0

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Waits until the predicate is true. Returns False if it is not true after `timeout` seconds."""
        self._waiting += 1
        try:
            return self._condition.wait_for(predicate, timeout)
        finally:
            self._waiting -= 1

    def notify(self) -> None:
        """Wakes the waiting threads, so that they check their predicates."""
        if self._waiting:
            self._condition.notify_all()
