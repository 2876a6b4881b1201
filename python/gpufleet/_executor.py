"""An executor of `concurrent.futures` for kernels."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from gpufleet._kernel import Kernel

if TYPE_CHECKING:
    from gpufleet._future import Future

__all__ = ["KernelExecutor"]


class KernelExecutor(concurrent.futures.Executor):
    """An executor of `concurrent.futures` that runs kernels. `Fleet.executor` makes it.

    `executor.submit(kernel, ...)` does the same as `kernel.submit(...)`. Python functions do not run on the fleet.
    """

    def __init__(self) -> None:
        self._open: WeakSet[Future[Any]] = WeakSet()
        self._is_shut_down = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submits a job of a kernel and returns its future.

        Raises `TypeError` if `fn` is not a kernel, and `RuntimeError` after `shutdown`.
        """
        if not isinstance(fn, Kernel):
            raise TypeError(
                f"{fn!r} is not a kernel; workers run CUDA kernels, not Python functions. Pass fleet.kernel(...) or"
                " fleet.RawKernel(...), or compile the function with fleet.numba(...)"
            )
        if self._is_shut_down:
            raise RuntimeError("the executor was shut down; make another")
        future = fn.submit(*args, **kwargs)
        self._open.add(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Refuses further jobs. If `wait` is true, waits until the submitted jobs have ended.

        If `cancel_futures` is true, it first orders the workers to cancel all jobs that have not ended.
        """
        self._is_shut_down = True
        futures = list(self._open)
        if cancel_futures:
            for future in futures:
                future.cancel_soon()
        if wait:
            for future in futures:
                future._wait()
