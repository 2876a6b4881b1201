"""Jobs that need the results of other jobs before they can be submitted."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from gpufleet._errors import GpufleetError, WaitTimeout
from gpufleet._future import Future

if TYPE_CHECKING:
    from gpufleet._connection import Connection
    from gpufleet._core import Report
    from gpufleet._progress import Progress
    from gpufleet._task import Options

R = TypeVar("R")


class Dependent(Future[R]):
    """The future of a job that is submitted when the futures that it needs have ended.

    If one of them fails, this future has the same exception. If `own` is true, the needed futures belong to this future
    and are cancelled with it.
    """

    def __init__(
        self,
        connection: Connection,
        token: int,
        options: Options,
        needs: Sequence[Future[Any]],
        submit: Callable[[], Future[R]],
        *,
        own: bool,
    ) -> None:
        super().__init__(connection, token, "", options, _never)
        self._submit = submit
        self._needs = tuple(needs)
        self._own = own
        self._job: Future[R] | None = None
        self._missing = len(needs)
        self._lock = threading.Lock()
        self._is_submitted = threading.Event()
        """Set when the job was submitted, or will never be submitted."""

    def start(self) -> None:
        """Waits for the needed futures in the background."""
        for need in self._needs:
            need.add_done_callback(self._arrived)

    @property
    def job_id(self) -> str:
        if self._job is None:
            raise GpufleetError("the job has no id yet, because the jobs that it needs have not ended")
        return self._job.job_id

    @property
    def progress(self) -> Progress | None:
        self._follow()
        return None if self._job is None else self._job.progress

    def add_progress_callback(self, function: Callable[[Progress], object]) -> None:
        with self._lock:
            job = self._job
            if job is None:
                # The job gets it when it is submitted.
                super().add_progress_callback(function)
        if job is not None:
            job.add_progress_callback(function)

    def confirmed(self, timeout: float | None = None) -> None:
        if not self._is_submitted.wait(timeout):
            raise WaitTimeout(f"the jobs that {self._what} needs did not end within {timeout} s")
        if self._job is not None:
            self._job.confirmed(timeout)

    def cancel(self) -> bool:
        return self._cancel(lambda future: future.cancel())

    def cancel_soon(self) -> bool:
        return self._cancel(lambda future: future.cancel_soon())

    def _cancel(self, cancel: Callable[[Future[Any]], bool]) -> bool:
        self._require_own()
        if self.done():
            return self.cancelled()
        with self._lock:
            job = self._job
        ended = self._end_cancelled()
        if job is not None:
            cancel(job)
        elif self._own:
            for need in self._needs:
                cancel(need)
        return ended

    def _arrived(self, _: concurrent.futures.Future[Any]) -> None:
        with self._lock:
            self._missing -= 1
            if self._missing:
                return
        if self.done():
            return
        try:
            for need in self._needs:
                need.result()
            job = self._submit()
        except BaseException as problem:
            self._end(None, problem, None)
            return
        with self._lock:
            self._job, self._job_id = job, job.job_id
            callbacks = () if self._course is None else self._course.callbacks
        for callback in callbacks:
            job.add_progress_callback(callback)
        self._is_submitted.set()
        if self.cancelled():
            # It was cancelled while the job was submitted.
            job.cancel_soon()
        job.add_done_callback(self._ended)

    def _ended(self, job: concurrent.futures.Future[R]) -> None:
        assert isinstance(job, Future)
        if job.cancelled():
            self._end_cancelled()
            return
        error = job.exception()
        self._end(None if error else job.result(), error, job._report)

    def _end(self, result: R | None, error: BaseException | None, report: Report | None) -> None:
        self._connection.forget(self._token)
        self._is_submitted.set()
        super()._end(result, error, report)


def _never(_: object) -> Any:
    raise AssertionError("the outcome is that of another future")
