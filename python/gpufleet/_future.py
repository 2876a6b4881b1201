"""The future of a job."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, PENDING
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from gpufleet import _scope
from gpufleet._errors import ForkedError, JobCancelled, SubmitError, WaitTimeout, explain
from gpufleet._progress import Course, Progress
from gpufleet._report import RanOn, Timings, ran_on_of, timings_of

if TYPE_CHECKING:
    from gpufleet._connection import Connection
    from gpufleet._core import Report, _Update
    from gpufleet._task import Options

R = TypeVar("R")

Outputs = dict[str, Any]
"""The arrays that a job returns, by name."""

OBSTACLE_SECONDS = 1.0
"""The minimum timeout in seconds for which the error says why the job waits."""

_state_lock = threading.Lock()
"""Protects the decision whether a future has a condition, and its callbacks. It is held only briefly."""

_logger = logging.getLogger("gpufleet")


class Future(concurrent.futures.Future[R]):
    """The future of a submitted job.

    It can be awaited in any asyncio loop, and `concurrent.futures` and `asyncio` accept it like any other future. Its
    callbacks run in the thread that completes the fleet's futures. They should be short, and must not wait for other
    futures.
    """

    # The base class makes a condition and two lists, which take more than a kilobyte. Most futures of a large batch end
    # before anything waits for them, so here `__getattr__` makes these when something needs them. Nothing else may use
    # `__dict__`, which is an object that Python makes when asked for.
    _state: str = PENDING
    _result: R | None = None
    _exception: BaseException | None = None
    _report: Report | None = None
    _observers: tuple[Callable[[Future[Any]], object], ...] = ()
    """Functions to call once with this future when it ends. Unlike callbacks of the base class, they need no condition.
    """
    _course: Course | None = None
    """The progress of the job, once there is any or something asks for it."""
    _has_condition: bool = False
    _expects_cancellation: bool = False
    """Set before an order to cancel is sent, because the worker's answer may arrive before the broker's confirmation.
    """

    def __init__(
        self, connection: Connection, token: int, job_id: str, options: Options, finish: Callable[[Outputs], R]
    ) -> None:
        self._connection = connection
        self._token = token
        self._job_id = job_id
        self._options = options
        self._finish = finish

    def __getattr__(self, name: str) -> Any:
        if name == "_condition":
            with _state_lock:
                if not self._has_condition:
                    self._condition, self._has_condition = threading.Condition(), True
            return self._condition
        if name in ("_waiters", "_done_callbacks"):
            return self.__dict__.setdefault(name, [])
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def job_id(self) -> str:
        """The id of the job, for `gpufleet show` and `Fleet.attach`.

        For a job that needs other jobs, it raises `GpufleetError` until these have ended.
        """
        return self._job_id

    @property
    def progress(self) -> Progress | None:
        """How far the job is, as its worker says about once a second.

        None until the job has run for a second, and if the fleet's user may not follow progress; a warning of the
        logger ``gpufleet`` says so. After the end of the job, it is the last progress. The first use asks the broker
        for the progress of all jobs that the fleet submits to the pool.
        """
        self._follow()
        course = self._course
        return None if course is None else course.latest

    def add_progress_callback(self, function: Callable[[Progress], object]) -> None:
        """Calls a function with each further progress of the job, about once a second while it runs.

        The thread that completes the fleet's futures calls it. Exceptions of the function are logged.
        """
        with _state_lock:
            self._course = course = self._course or Course()
            course.callbacks = (*course.callbacks, function)
        self._follow()

    def updates(self) -> AsyncIterator[Progress]:
        """Yields each further progress of the job in an asyncio loop, until the job has ended.

        It neither raises the job's exception nor cancels the job: `await` the future for its result.
        """
        from gpufleet import _bridge  # noqa: PLC0415

        return _bridge.updates(self)

    @property
    def timings(self) -> Timings | None:
        """The time that each step took. None until a worker has answered."""
        return None if self._report is None else timings_of(self._report)

    @property
    def ran_on(self) -> RanOn | None:
        """The worker and the device that ran the job. None until a worker has answered, or if the job reached no
        device.
        """
        return None if self._report is None else ran_on_of(self._report)

    @property
    def printed(self) -> str | None:
        """The text that the kernels printed, or the end of what a host program printed.

        None if they printed nothing, or no worker has answered yet.
        """
        return None if self._report is None else self._report.printed()

    def done(self) -> bool:
        """Returns whether the job has ended or the future was cancelled."""
        return self._state in (FINISHED, CANCELLED, CANCELLED_AND_NOTIFIED)

    def result(self, timeout: float | None = None) -> R:
        """Waits for the result and returns it. Raises `JobFailed` or another exception of the job.

        Raises `WaitTimeout` if there is no outcome within `timeout` seconds; the job keeps running. By default it waits
        forever.
        """
        if self._state == FINISHED and self._exception is None:
            # Without the condition, which would have to be made.
            return cast("R", self._result)
        self._require_own()
        _scope.waited(self)
        try:
            return super().result(timeout)
        except TimeoutError:
            if self.done():
                raise
            self._time_out(timeout)
        except KeyboardInterrupt:
            if self._connection.cancels_interrupted:
                self.cancel_soon()
            raise

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits for the outcome, and returns the exception that `result` would raise, or None.

        Raises `WaitTimeout` if there is no outcome within `timeout` seconds.
        """
        self._require_own()
        _scope.waited(self)
        try:
            return super().exception(timeout)
        except TimeoutError:
            if self.done():
                raise
            self._time_out(timeout)

    def confirmed(self, timeout: float | None = None) -> None:
        """Waits until the broker has the job on disk. From then on, the job runs even if this process ends.

        Raises `SubmitError` if the broker refused the job, and `WaitTimeout` after `timeout` seconds.
        """
        self._require_own()
        if not self._connection.wait_confirmed(self._token, timeout):
            raise WaitTimeout(f"the broker did not confirm {self._what} within {timeout} s")
        # A refusal ends the future right after it is no longer unconfirmed.
        if self._connection.is_ended(self._token) and isinstance(error := super().exception(), SubmitError):
            raise error

    def cancel(self) -> bool:
        """Orders the workers to cancel the job. The future ends as cancelled, whatever the job does.

        Returns when the broker has the order on disk, or False if the job has already ended. Raises `CancelError` if
        the broker does not take the order.
        """
        self._require_own()
        if self.done():
            return self.cancelled()
        self._expects_cancellation = True
        self._connection.cancel([self._job_id])
        return self._end_cancelled()

    def cancel_soon(self) -> bool:
        """Orders the workers to cancel the job, like `cancel`, but does not wait for the broker."""
        self._require_own()
        if self.done():
            return self.cancelled()
        self._expects_cancellation = True
        self._connection.cancel([self._job_id], wait=False)
        return self._end_cancelled()

    def __await__(self) -> Generator[Any, None, R]:
        from gpufleet import _bridge  # noqa: PLC0415

        self._require_own()
        return _bridge.wait(self)

    def __repr__(self) -> str:
        return f"<gpufleet.Future of {self._what}: {self._state.lower()}>"

    def _repr_html_(self) -> str:
        from gpufleet.notebook._html import card  # noqa: PLC0415
        from gpufleet.notebook._view import view_of  # noqa: PLC0415

        return card(view_of(self), self.printed)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a future belongs to its process; send future.job_id, and call Fleet.attach there")

    @property
    def _what(self) -> str:
        """The name of the job in messages."""
        return f"job {self._job_id}" if self._job_id else "a job that needs others"

    def _wait(self) -> None:
        """Waits for the outcome, whether it is a result or an exception."""
        _scope.waited(self)
        with contextlib.suppress(concurrent.futures.CancelledError):
            super().exception()

    def _follow(self) -> None:
        """Asks for the progress of the job."""
        if not self.done():
            self._connection.follow(self._options.pool)

    def _progressed(self, update: _Update) -> None:
        """Takes a message about the job's progress. The thread that completes futures calls it."""
        with _state_lock:
            self._course = course = self._course or Course()
        progress = None if self.done() else course.take(update)
        if progress is None:
            return
        for callback in course.callbacks:
            try:
                callback(progress)
            except Exception:
                _logger.exception("a progress callback of %s raised an exception", self._what)

    def _end_cancelled(self) -> bool:
        if not super().cancel():
            return False
        # Several threads may come here; only the first one tells those who wait.
        with self._condition:
            is_first = self._state == CANCELLED
            if is_first:
                self.set_running_or_notify_cancel()
        if is_first:
            self._connection.forget(self._token)
            self._tell_observers()
        return True

    def _complete(self, outputs: Outputs | None, error: BaseException | None, report: Report | None) -> None:
        """Ends the future, unless it was cancelled. The thread that completes futures calls it."""
        result: R | None = None
        if error is None:
            try:
                result = self._finish(outputs or {})
            except Exception as problem:
                error = problem
        else:
            own = getattr(self._finish, "explain", None)
            own(error) if own else explain(error, None)
        self._end(result, error, report)

    def _end(self, result: R | None, error: BaseException | None, report: Report | None) -> None:
        self._report = report
        if self._expects_cancellation and isinstance(error, JobCancelled):
            self._end_cancelled()
            return
        with _state_lock:
            has_waiters = self._has_condition
            if not has_waiters:
                # Nothing waits, and nothing can begin to wait before this lock is free.
                self._result, self._exception, self._state = result, error, FINISHED
        if has_waiters:
            self._end_with_waiters(result, error)
        self._tell_observers()

    def _end_with_waiters(self, result: R | None, error: BaseException | None) -> None:
        try:
            if error is not None:
                self.set_exception(error)
            else:
                self.set_result(result)  # type: ignore[arg-type]
        except concurrent.futures.InvalidStateError:
            if self._state not in (CANCELLED, CANCELLED_AND_NOTIFIED):
                raise

    def _observe(self, observer: Callable[[Future[Any]], object]) -> None:
        """Calls the observer when this future ends, or now if it has ended. The observer must be quick, and must not
        raise.
        """
        with _state_lock:
            if not self.done():
                self._observers = (*self._observers, observer)
                return
        observer(self)

    def _tell_observers(self) -> None:
        with _state_lock:
            observers = self._observers
            if observers:
                self._observers = ()
        for observer in observers:
            observer(self)

    def _require_own(self) -> None:
        if not self._connection.is_inherited:
            return
        # The thread that held the condition at the fork does not exist here.
        self._condition, self._has_condition = threading.Condition(), True
        if not self.done():
            raise ForkedError(
                f"{self._what} was submitted by the process that forked this one, which gets the result;"
                " submit the job in this process, or wait for it there"
            )

    def _obstacle(self) -> str | None:
        """Returns why the job waits, if the broker tells."""
        return self._connection.obstacle(self._options.pool or self._connection.pool)

    def _time_out(self, timeout: float | None) -> NoReturn:
        # Who polls with short timeouts should not ask the broker each time.
        why = self._obstacle() if timeout is not None and timeout >= OBSTACLE_SECONDS else None
        raise WaitTimeout(
            f"no result for {self._what} arrived within {timeout} s" + (f": {why}" if why else "")
        ) from None


def as_completed(futures: Iterable[Future[R]], timeout: float | None = None) -> Iterator[Future[R]]:
    """Yields futures in the order in which they end.

    Raises `WaitTimeout` if not all of them have ended within `timeout` seconds. By default it waits forever.
    """
    waited = set(futures)
    ended: SimpleQueue[Future[R]] = SimpleQueue()
    for future in waited:
        future._require_own()
        _scope.waited(future)
        future._observe(ended.put)
    deadline = None if timeout is None else time.monotonic() + timeout
    for _ in range(len(waited)):
        try:
            yield ended.get(timeout=None if deadline is None else max(deadline - time.monotonic(), 0))
        except Empty:
            open_count = sum(not future.done() for future in waited)
            raise WaitTimeout(f"{open_count} of {len(waited)} jobs had no result within {timeout} s") from None


def reset_after_fork() -> None:
    """Replaces the lock, because another thread may have held it in the parent."""
    global _state_lock
    _state_lock = threading.Lock()
