"""A process that cancels the jobs of a run if the process that executes the notebook dies, even by `kill -9`.

Its standard input ends when that process ends. The last line says whether the run was complete.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Self

__all__ = ["Watch"]

CANCEL_SECONDS = 60
"""The time for the order to cancel, which needs a connection."""
_DONE = "done"


class Watch:
    """Watches the process that made it."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        words = [f"{name}={value}" for name, value in labels.items()]
        # An interrupt of the terminal is for the parent alone.
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *words], stdin=subprocess.PIPE, text=True, start_new_session=True
        )
        self._is_complete = False

    def kernel(self, pid: int) -> None:
        """The kernel, which may submit jobs after this process has died."""
        self._write(str(pid))

    def complete(self) -> None:
        """Open jobs may run on."""
        self._is_complete = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_complete:
            self._write(_DONE)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(CANCEL_SECONDS)

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)


def main(labels: dict[str, str], lines: list[str]) -> None:
    """Ends the kernel and cancels the jobs, unless the run was complete."""
    if _DONE in lines:
        return
    for line in lines:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(line), signal.SIGKILL)
    from gpufleet import Fleet  # noqa: PLC0415

    with Fleet() as fleet:
        fleet.cancel(labels=labels)


if __name__ == "__main__":
    main(dict(word.split("=", 1) for word in sys.argv[1:]), sys.stdin.read().split())
