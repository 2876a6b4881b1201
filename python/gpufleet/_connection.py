"""A connection of one process, and the thread that completes its futures."""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from gpufleet import _errors, _future, _scope
from gpufleet._changes import Changes
from gpufleet._core import Client, Job
from gpufleet._dependent import Dependent
from gpufleet._diagnostics import Excerpt
from gpufleet._errors import Failure, FleetClosed, GpufleetError
from gpufleet._future import Future, Outputs
from gpufleet._printed import result_of
from gpufleet._remote import RemoteArray
from gpufleet._settings import AFFINITY, NO_USER_ID, POOL, Place, Settings, flag
from gpufleet._task import Options, Stored
from gpufleet._window import Window
from gpufleet._wire import array_of

if TYPE_CHECKING:
    from pathlib import Path

    from gpufleet._core import Bytes, Session, _Ended, _Failure, _Output, _Unsuccessful, _Update
    from gpufleet._task import Task

A = TypeVarTuple("A")
R = TypeVar("R")
T = TypeVar("T")

CLOSE_SECONDS = 30.0
"""The time in seconds for which `close` waits for the broker's confirmations."""
EXIT_SECONDS = 5.0
"""The time in seconds for which the end of the program waits for the broker's confirmations."""

_logger = logging.getLogger("gpufleet")


class Connection:
    """A connection to a fleet. A forked child must make its own."""

    def __init__(self, settings: Settings, place: Place, environment: Mapping[str, str]) -> None:
        self._client = Client(
            place.url,
            blobs=place.blobs,
            key=place.key,
            client=settings.client,
            connect_seconds=settings.connect_timeout,
            confirm_seconds=settings.confirm_timeout,
            keep_replies_seconds=settings.keep_replies,
            user_id=settings.user_id if settings.user_id is not None else not flag(None, NO_USER_ID, environment),
            affinity=flag(settings.affinity, AFFINITY, environment),
        )
        self._pid = os.getpid()
        self.pool: str = environment.get(POOL) or "default"
        """The pool of jobs that name no pool."""
        self.cancels_interrupted: bool = settings.on_interrupt == "cancel"
        self._followed: dict[str, float] = {}
        """The pools whose progress was asked for, with the seconds for which the answer was waited for."""
        self._keeps_replies = settings.client is not None
        self._is_closed = False
        self._tokens = itertools.count()
        self._open = _OpenJobs()
        # The thread must not hold this object, so that an abandoned connection is closed.
        self._thread = threading.Thread(
            target=_complete_futures, args=(self._client, self._open), name="gpufleet-futures", daemon=True
        )
        self._thread.start()
        self._abandoned = weakref.finalize(self, _close_abandoned, self._client, self._pid)
        self._abandoned.atexit = False
        _connections.add(self)

    @property
    def is_inherited(self) -> bool:
        """Whether this process was forked from the process that made the connection."""
        return self._pid != os.getpid()

    @property
    def client_name(self) -> str:
        return self._client.name

    def submit(
        self, task: Task, finish: Callable[[Outputs], R], *, unread: bool = False, kind: type[Future[Any]] = Future
    ) -> Future[R]:
        """Sends a job once there is room. Errors after the checks are raised by the future, which is of this kind.

        If the job is `unread`, its large outputs stay in the blob store.
        """
        task = _scope.applied(task)
        job = Job(task, self.pool)
        future = self._future(job, task.options, finish, kind)
        self._begin([future], [task.input_bytes], self._client.submit, future._token, job, unread)
        _scope.began([future])
        return future

    def run(self, task: Task, finish: Callable[[Outputs], R]) -> R:
        """Sends a job once there is room, and waits for its result.

        This is faster than submitting the job and waiting for its future, which involves two other threads.
        """
        if self._keeps_replies:
            return result_of(self.submit(task, finish))
        task = _scope.applied(task)
        job = Job(task, self.pool)
        future = self._future(job, task.options, finish)
        try:
            end = self._begin([future], [task.input_bytes], self._run, future, job)
        except KeyboardInterrupt:
            if self.cancels_interrupted:
                future.cancel_soon()
            raise
        if end is not None and self._open.remove(future._token) is not None:
            _complete(future, end)
        return result_of(future)

    def _run(self, future: Future[Any], job: Job) -> _Ended | None:
        _scope.began([future])
        return self._client.run(job, future.done)

    def submit_after(
        self, needs: Sequence[Future[Any]], submit: Callable[[], Future[R]], options: Options, *, own: bool
    ) -> Future[R]:
        """Submits a job when the futures that it needs have ended."""
        future = Dependent(self, next(self._tokens), options, needs, submit, own=own)
        self._begin([future], [0], future.start)
        _scope.began([future])
        return future

    def submit_many(self, tasks: Sequence[Task], finish: Sequence[Callable[[Outputs], R]]) -> list[Future[R]]:
        """Sends jobs that share messages."""
        tasks = [_scope.applied(task) for task in tasks]
        jobs = [Job(task, self.pool) for task in tasks]
        futures = [
            self._future(job, task.options, finish) for task, job, finish in zip(tasks, jobs, finish, strict=True)
        ]
        tokens = [future._token for future in futures]
        self._begin(futures, [task.input_bytes for task in tasks], self._client.submit_many, tokens, jobs)
        _scope.began(futures)
        return futures

    def detach(self, task: Task) -> str:
        """Sends a job whose reply stays with the broker, waits for the broker's confirm, and returns the job's id."""
        self._require_open()
        job = Job(task, self.pool)
        job_id = job.id
        if (refused := self._client.detach(job)) is not None:
            raise _errors.refused(*refused[1:])
        return job_id

    def open_session(self, job: Job, library: str, is_over: Callable[[], bool]) -> Session | _Unsuccessful | None:
        """Waits until a worker has opened the session of a job, unless `is_over()` becomes true."""
        self._require_open()
        return self._client.open_session(job, library, is_over)

    def attach(self, job_id: str, *, read: bool = True, pool: str | None = None) -> Future[Outputs]:
        """Returns a future for a job of an earlier program with the same client name."""
        future: Future[Outputs] = Future(self, next(self._tokens), job_id, Options(pool=pool), dict)
        self._begin([future], [0], self._client.attach, future._token, job_id, read)
        return future

    def follow(self, pool: str | None, seconds: float = 0.0) -> None:
        """Receives the progress of the jobs of a pool from now on.

        Waits for the broker's answer for this many seconds, so that nothing of a job that is submitted next is missed.
        """
        name = pool or self.pool
        if self._followed.get(name, -1.0) >= seconds or self._is_closed or self.is_inherited:
            return
        self._followed[name] = seconds
        self._open.find_by_id()
        self._client.follow(name, seconds)

    def next_progress(self, job_id: str, pool: str | None, seconds: float) -> _Update | None:
        """Waits for the next progress of a job that any client may have submitted. Raises `GpufleetError` if the user
        may not follow it.
        """
        self._require_open()
        return self._client.next_progress(pool or self.pool, job_id, seconds)

    def replies_waiting(self, client: str) -> int | None:
        self._require_open()
        return self._client.replies_waiting(client)

    def delete_replies(self, client: str) -> None:
        self._require_open()
        self._client.delete_replies(client)

    def unread(self) -> list[str]:
        self._require_open()
        return self._client.unread()

    def cancel(self, jobs: Sequence[str], labels: Mapping[str, str] | None = None, *, wait: bool = True) -> None:
        """Orders the workers to cancel jobs."""
        self._require_open()
        self._client.cancel(jobs, dict(labels or {}), _caller(), wait)

    def forget(self, token: int) -> None:
        """Discards the outcome of a job when it arrives."""
        self._open.remove(token)

    def open_futures(self) -> list[Future[Any]]:
        """Returns the futures without an outcome."""
        return self._open.futures()

    def store(self, dtype: str, shape: tuple[int, ...], array: Any) -> str:
        self._require_open()
        return self._client.store(dtype, shape, array)

    def read(self, digest: str, dtype: str, shape: tuple[int, ...]) -> Any:
        self._require_open()
        return array_of(self._client.read(digest, dtype, shape), dtype, shape)

    def unpack(self, archive: RemoteArray, folder: str, *, replace: bool) -> list[Path]:
        """Unpacks an archive of the blob store."""
        self._require_open()
        return self._client.unpack_stored(archive.digest, archive.shape[0], folder, replace)

    def has_room(self, task: Task) -> bool:
        """Returns whether the job would be sent at once."""
        return self._open.window.has_room(1, task.input_bytes)

    def wait_confirmed(self, token: int, timeout: float | None) -> bool:
        """Waits until the broker has the job on disk, or the job has ended. Returns False after `timeout` seconds."""
        return self._open.wait_confirmed(token, timeout)

    def is_ended(self, token: int) -> bool:
        """Returns whether the outcome of a job has arrived."""
        return token not in self._open

    def obstacle(self, pool: str, *, of_programs: bool = False) -> str | None:
        """Returns why the jobs or the host programs of a pool wait, if the broker tells."""
        return None if self._is_closed else self._client.obstacle(pool, of_programs)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Waits until the broker has confirmed everything, and closes the connection. Open futures end with
        `FleetClosed`.
        """
        if self._is_closed or self.is_inherited:
            return
        self._is_closed = True
        self._abandoned.detach()
        try:
            self._client.close(seconds)
        finally:
            if threading.current_thread() is not self._thread:
                self._thread.join()

    def _future(
        self, job: Job, options: Options, finish: Callable[[Outputs], R], kind: type[Future[Any]] = Future
    ) -> Future[R]:
        future = kind(self, next(self._tokens), job.id, options, finish)
        if options.on_progress is not None:
            future.add_progress_callback(options.on_progress)
        return future

    def _begin(self, futures: Sequence[Future[Any]], sizes: Sequence[int], send: Callable[[*A], T], *args: *A) -> T:
        """Waits for room, registers the futures, and then sends their jobs. The order matters, because an outcome may
        arrive at once.
        """
        self._require_open()
        self._open.add(futures, sizes)
        try:
            # `close` ends every future that was added before this look, and a later one sees here that it is closed.
            self._require_open()
            return send(*args)
        except BaseException:
            for future in futures:
                self._open.remove(future._token)
            raise

    def _require_open(self) -> None:
        if self._is_closed:
            raise FleetClosed("the fleet was closed; create another Fleet")


class _OpenJobs:
    """The futures without an outcome, by token."""

    def __init__(self) -> None:
        self.window = Window()
        self._futures: dict[int, Future[Any]] = {}
        self._by_id: dict[str, Future[Any]] | None = None
        """The same futures by the ids of their jobs, once the progress of one was asked for."""
        self._has_warned = False
        self._unconfirmed: dict[int, int] = {}
        """The sizes in bytes of the jobs that the broker has not confirmed, by token."""
        self._confirmations = Changes()

    def add(self, futures: Sequence[Future[Any]], sizes: Sequence[int]) -> None:
        """Waits for room and registers the futures."""
        self.window.enter(len(futures), sum(sizes))
        for future, size in zip(futures, sizes, strict=True):
            self._unconfirmed[future._token] = size
            self._futures[future._token] = future
            self._index(future)

    def remove(self, token: int) -> Future[Any] | None:
        future = self._pop(token)
        if future is not None:
            self.window.leave(1, self._confirm([token]))
        return future

    def confirmed(self, tokens: Sequence[int]) -> None:
        if size := self._confirm(tokens):
            self.window.leave(0, size)

    def wait_confirmed(self, token: int, timeout: float | None) -> bool:
        with self._confirmations.lock:
            return self._confirmations.wait_for(lambda: token not in self._unconfirmed, timeout)

    def _confirm(self, tokens: Sequence[int]) -> int:
        """Marks jobs as confirmed. Returns the total size of those that were not confirmed before."""
        size = 0
        for token in tokens:
            size += self._unconfirmed.pop(token, 0)
        with self._confirmations.lock:
            self._confirmations.notify()
        return size

    def take(self, tokens: Sequence[int]) -> list[Future[Any] | None]:
        """Removes and returns the futures of jobs that have ended; None for those that were cancelled."""
        futures = [self._pop(token) for token in tokens]
        size = self._confirm(tokens)
        self.window.leave(sum(future is not None for future in futures), size)
        return futures

    def find_by_id(self) -> None:
        """Begins to find futures by the ids of their jobs."""
        if self._by_id is None:
            self._by_id = {}
            for future in self.futures():
                self._index(future)
                if future._token not in self._futures:
                    # It has ended meanwhile.
                    self._by_id.pop(future._job_id, None)

    def progressed(self, updates: Sequence[_Update], problem: str | None) -> None:
        """Passes the progress of jobs on to their futures, or says why there is none."""
        for update in updates:
            future = (self._by_id or {}).get(update[0])
            if future is not None:
                future._progressed(update)
        if problem is not None and not self._has_warned:
            self._has_warned = True
            _logger.warning("futures of this fleet have no progress: %s", problem)

    def _index(self, future: Future[Any]) -> None:
        # A job that needs others has no id yet, and a future of its own when it has one.
        if self._by_id is not None and future._job_id:
            self._by_id[future._job_id] = future

    def _pop(self, token: int) -> Future[Any] | None:
        future = self._futures.pop(token, None)
        if future is not None and self._by_id is not None and self._by_id.get(future._job_id) is future:
            del self._by_id[future._job_id]
        return future

    def __contains__(self, token: int) -> bool:
        return token in self._futures

    def futures(self) -> list[Future[Any]]:
        return list(self._futures.copy().values())


def _complete_futures(client: Client, jobs: _OpenJobs) -> None:
    """Completes futures until the connection is closed. It has a thread of its own."""
    jobs.window.exempt = threading.get_ident()
    while (news := client.next()) is not None:
        _deliver(jobs, *news)
        # It would otherwise live until the next news.
        news = None
    for future in jobs.take([future._token for future in jobs.futures()]):
        if future is not None:
            _complete(future, ("lost", FleetClosed.__name__, f"the fleet was closed before {future._what} ended"))


def _deliver(
    jobs: _OpenJobs,
    confirmed: Sequence[int],
    ended: Sequence[int],
    ends: Sequence[_Ended],
    progress: Sequence[_Update],
    not_followed: str | None,
) -> None:
    jobs.confirmed(confirmed)
    jobs.progressed(progress, not_followed)
    for future, end in zip(jobs.take(ended), ends, strict=True):
        if future is None:
            continue
        try:
            _complete(future, end)
        except Exception as problem:
            # The other futures must not wait for ever.
            future._complete(None, problem, None)


def _complete(future: Future[Any], end: _Ended) -> None:
    match end:
        case ("succeeded", report, outputs):
            future._complete(_arrays(outputs), None, report)
        case ("failed", report, _, _, outputs):
            future._complete(_arrays(outputs), error_of(future.job_id, end), report)
        case _:
            future._complete(None, error_of(future.job_id, end), None)


def error_of(job_id: str, end: _Unsuccessful) -> GpufleetError:
    """Returns the exception for a job that has not succeeded."""
    match end:
        case ("failed", _, how, failure, _):
            return _errors.failed(job_id, how, None if failure is None else _failure(failure))
        case ("refused", kind, message, retry_after):
            return _errors.refused(kind, message, retry_after)
        case ("lost", kind, message):
            return _errors.lost(kind, message)


def _failure(failure: _Failure) -> Failure:
    verdict, code, message, detail, line, source = failure
    return Failure(verdict, code, message, detail, line, None if source is None else Excerpt(*source))


def _arrays(outputs: Sequence[_Output]) -> Outputs:
    return {name: _output(data, dtype, shape) for name, dtype, shape, data in outputs}


def _output(data: Bytes | str, dtype: str, shape: tuple[int, ...]) -> Any:
    """Returns an output as an array, or as a reference if it is in the blob store."""
    return RemoteArray(Stored(data, shape, dtype)) if isinstance(data, str) else array_of(data, dtype, shape)


def _caller() -> str:
    """Returns the user and host that give an order, for people."""
    import getpass  # noqa: PLC0415
    import socket  # noqa: PLC0415

    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.geteuid())
    return f"{user}@{socket.gethostname()}"


_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _close_abandoned(client: Client, pid: int) -> None:
    if pid == os.getpid():
        client.close(EXIT_SECONDS)


@atexit.register
def _close_all() -> None:
    """Closes all connections, because a thread that waits in Rust while the interpreter ends would crash it."""
    for connection in list(_connections):
        connection.close(EXIT_SECONDS)


def _reset_after_fork() -> None:
    _future.reset_after_fork()
    _connections.clear()


os.register_at_fork(after_in_child=_reset_after_fork)
