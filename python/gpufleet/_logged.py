"""Waits for a job and logs how far it is, for programs whose users read a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from gpufleet._errors import WaitTimeout

if TYPE_CHECKING:
    from gpufleet._future import Future

__all__ = ["LOG_SECONDS", "logged_result"]

R = TypeVar("R")

LOG_SECONDS = 30.0
"""The time between two lines."""


def logged_result(future: Future[R], log: Callable[..., object], timeout: float | None = None) -> R:
    """Waits for the result of a job like `Future.result`. Meanwhile, logs how far the job is or why it waits."""
    deadline = None if timeout is None else time.monotonic() + timeout
    # Asks the broker for the progress before the first line needs it.
    future._follow()
    while True:
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        try:
            return future.result(LOG_SECONDS if left is None else min(LOG_SECONDS, left))
        except WaitTimeout as problem:
            if left is not None and left <= LOG_SECONDS:
                raise
            log("%s", _line(future, problem))


def _line(future: Future[Any], problem: WaitTimeout) -> str:
    progress = future.progress
    return str(problem) if progress is None else f"job {progress.job_id}: {progress}"
