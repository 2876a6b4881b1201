"""Shows what a host program prints below the cell that waits for it."""

from __future__ import annotations

from gpufleet._printed import Transcript, printed_bytes

__all__ = ["ProgramTranscript"]

LAST_CHARACTERS = 200
"""The end of what was received, by which its place in the outcome is checked."""


class ProgramTranscript(Transcript):
    """What a running program has printed and was not shown.

    It may print for hours, so what was shown is not kept. The outcome has the end of the output. If messages are lost,
    a line says how many bytes are missing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last = ""
        """The end of what was received."""

    def add(self, run: tuple[int, int], offset: int, text: str, *, is_next: bool) -> None:
        with self._lock:
            if run != self._run:
                self._run, self._text, self._last, self._end = run, "", "", 0
            if not is_next and offset > self._end:
                self._text += _missing(offset - self._end)
            self._text += text
            self._last = (self._last + text)[-LAST_CHARACTERS:]
            self._end = offset + printed_bytes(text)

    def unseen(self) -> str:
        with self._lock:
            end = self._text.rfind("\n") + 1
            lines, self._text = self._text[:end], self._text[end:]
            return lines

    def rest(self, whole: str, before: int = 0) -> str:
        with self._lock:
            if self._is_over:
                return ""
            self._is_over = True
            if self._end < before:
                return self._text + _missing(before - self._end) + whole
            return self._text + whole[_place_after(whole, self._end - before, self._last) :]


def _missing(count: int) -> str:
    return f"\n… {count} bytes were not received; the log of the result has them …\n"


def _place_after(whole: str, count: int, last: str) -> int:
    """Returns the index in a text after so many bytes, which end with `last`.

    >>> _place_after("epoch 1\\nepoch 2\\n", 8, "epoch 1\\n"), _place_after("\\ufffd\\ufffdx y", 7, "x ")
    (8, 4)
    """
    index = 0
    while index < len(whole) and count > 0:
        count -= printed_bytes(whole[index])
        index += 1
    if last.endswith(whole[:index][-len(last) :]):
        return index
    # A replaced character stands for one to three bytes, so the count was not exact.
    found = whole.rfind(last)
    return index if found < 0 else found + len(last)
