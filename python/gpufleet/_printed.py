"""Shows what the kernels of a job printed below the cell that ran the job.

CUDA prints such text to the standard output of the process. A script may use its standard output for other text, so it
finds the printed text in `Future.printed`.
"""

from __future__ import annotations

import sys
from typing import Any, TypeVar

from gpufleet._future import Future

__all__ = ["in_notebook", "result_of"]

R = TypeVar("R")


def result_of(future: Future[R]) -> R:
    """Waits for the result of a job. In a notebook, prints what its kernels printed, even if the job failed."""
    try:
        return future.result()
    finally:
        if in_notebook() and (text := future.printed):
            print(text, end="" if text.endswith("\n") else "\n")


def in_notebook() -> bool:
    """Returns whether this process is the kernel of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
