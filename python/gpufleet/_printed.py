"""Shows what the kernels of a job printed below the cell that ran the job.

CUDA prints such text to the standard output of the process. A script may use its standard output for other text, so it
finds the printed text in `Future.printed`.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from gpufleet._future import Future

__all__ = ["Transcript", "in_notebook", "print_rest", "printed_bytes", "result_of"]

R = TypeVar("R")


class Transcript:
    """What the kernels of a running job have printed, and how much of it was shown.

    If a message is lost, the text behind it comes with the outcome, so that all of it is shown once and in order.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text = ""
        self._shown = 0
        self._run = (0, 0)
        """The run of the job that printed the text. Another one begins anew."""
        self._end = 0
        """The number of bytes that the kernels have printed so far."""
        self._is_whole = True
        """Whether no message was lost."""
        self._is_over = False

    def add(self, run: tuple[int, int], offset: int, text: str, *, is_next: bool) -> None:
        """Adds the piece that begins at a byte of what a run prints.

        `is_next` says that the message came directly after the one before.
        """
        with self._lock:
            if run != self._run:
                self._run, self._text, self._shown, self._end, self._is_whole = run, "", 0, 0, True
            self._is_whole = self._is_whole and (is_next or offset == self._end)
            if self._is_whole:
                self._text += text
                self._end = offset + printed_bytes(text)

    def unseen(self) -> str:
        """Returns the whole lines that were not shown yet. Other jobs may print between them."""
        with self._lock:
            begin, self._shown = self._shown, self._text.rfind("\n") + 1
            return self._text[begin : self._shown]

    def rest(self, whole: str, before: int = 0) -> str:
        """Returns what is left to be shown of the whole text, once.

        Of a long text, `whole` may be the end, which comes `before` so many bytes.
        """
        with self._lock:
            if self._is_over:
                return ""
            self._is_over = True
            shown = self._text[: self._shown]
            return whole[len(shown) :] if whole.startswith(shown) else whole


def result_of(future: Future[R]) -> R:
    """Waits for the result of a job. In a notebook, prints what its kernels printed, even if the job failed."""
    try:
        return future.result()
    finally:
        if in_notebook():
            print_rest(future)


def print_rest(future: Future[Any]) -> None:
    """Prints what the kernels of an ended job printed, except for what was shown while they ran."""
    text = future.printed or ""
    course = future._course
    if course is not None and course.transcript is not None:
        text = course.transcript.rest(text, 0 if future._report is None else future._report.printed_before)
    if text:
        print(text, end="" if text.endswith("\n") else "\n")


def in_notebook() -> bool:
    """Returns whether this process is the kernel of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def printed_bytes(text: str) -> int:
    """Returns the number of bytes that a worker made this text of. A byte that is no text became U+FFFD."""
    return len(text.encode()) - 2 * text.count("\ufffd")
