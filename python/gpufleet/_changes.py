"""Waits for changes that other threads make."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Changes"]


class Changes:
    """A condition of `threading` that costs little while no thread waits.

    The methods are called with the lock held.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._condition = threading.Condition(self.lock)
        self._waiting = 0

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Waits until the predicate is true. False after `timeout` seconds."""
        self._waiting += 1
        try:
            return self._condition.wait_for(predicate, timeout)
        finally:
            self._waiting -= 1

    def notify(self) -> None:
        """Lets the waiting threads look at their predicates."""
        if self._waiting:
            self._condition.notify_all()
