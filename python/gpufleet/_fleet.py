"""The connection to a fleet."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

import numpy.typing as npt

from gpufleet import _scope
from gpufleet._arrays import as_input, restore
from gpufleet._batch import Batch, current_batch
from gpufleet._catalog import CatalogKernel
from gpufleet._connection import CLOSE_SECONDS, Connection
from gpufleet._errors import CancelError, FleetClosed
from gpufleet._executor import KernelExecutor
from gpufleet._future import Future, Outputs
from gpufleet._history import History, read_history
from gpufleet._kernel import Kernel
from gpufleet._kernels import KernelFactories
from gpufleet._lazy import LazyArray
from gpufleet._needs import with_results
from gpufleet._plan import Plan, plan
from gpufleet._profile import surroundings
from gpufleet._progress import Progress
from gpufleet._remote import RemoteArray
from gpufleet._running import planned_for, submit_plan
from gpufleet._settings import Settings, place_of, redacted
from gpufleet._task import Options, Stored, Task

if TYPE_CHECKING:
    from gpufleet._program import ProgramFuture
    from gpufleet._session import Session

F = TypeVar("F", bound=Future[Any])
R = TypeVar("R")


class Fleet(KernelFactories):
    """A connection to a fleet. Raises `ConnectError` if it can not be made.

    `url` is an AMQP URL such as ``amqp://user:password@host:5672/vhost``, or several with commas between them, one for
    each node of a cluster. By default it is that of ``GPUFLEET_AMQP_URL``, else that of a profile in the configuration
    file, else that of the fleet of ``gpufleet local up``. `profile` selects a profile; by default ``GPUFLEET_PROFILE``
    does.

    `blobs` is the blob store that the workers use: a folder or ``s3://bucket/prefix``. By default it is that of
    ``GPUFLEET_BLOBS``, else that of the profile, else, for the local fleet, its own store.

    `client` is a client name, with which a later program can receive the results of jobs that are still open.
    `keep_replies` is the time in seconds for which the broker keeps their replies, by default a week.

    `connect_timeout` is the time in seconds to connect to one node, by default 10. `confirm_timeout` is the time in
    seconds to wait until the broker confirms a job, by default 60.

    If `user_id` is false, messages do not carry the URL's user name. If `affinity` is true, jobs prefer a worker whose
    device has their largest stored input; the pool must offer that.

    Use a fleet in a `with` statement, or close it. The end of the block waits for the open futures, as executors of
    `concurrent.futures` do. An exception that leaves the block cancels the open jobs. After Ctrl-C, jobs keep running,
    unless `on_interrupt` is ``"cancel"``; then Ctrl-C also cancels the job whose result is being awaited.

    Any number of threads may use a fleet. After `os.fork`, the child opens its own connection on first use.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        blobs: str | os.PathLike[str] | None = None,
        client: str | None = None,
        keep_replies: float | None = None,
        connect_timeout: float | None = None,
        confirm_timeout: float | None = None,
        user_id: bool | None = None,
        affinity: bool | None = None,
        on_interrupt: Literal["detach", "cancel"] = "detach",
        profile: str | None = None,
    ) -> None:
        if on_interrupt not in ("detach", "cancel"):
            raise ValueError(f"on_interrupt is 'detach' or 'cancel', not {on_interrupt!r}")
        store = None if blobs is None else os.fspath(blobs)
        settings = Settings(
            url,
            store,
            client,
            keep_replies,
            connect_timeout,
            confirm_timeout,
            user_id,
            affinity,
            on_interrupt,
            profile,
        )
        self._begin(settings)
        self._connected()

    def kernel(self, name: str, /, **options: Any) -> CatalogKernel:
        """Returns a kernel of the catalog. `options` are those of `kernel.options`.

        Raises `ValueError` if the catalog has no kernel with this name.
        """
        return CatalogKernel(self, name, Options().replace(**options))

    def put(self, array: object) -> RemoteArray:
        """Stores an array in the blob store, so that any number of jobs can use it. Raises `StoreFailed`."""
        given = as_input(array)
        shape = given.array.shape
        return RemoteArray(Stored(self._connected().store(given.dtype, shape, given.array), shape, given.dtype))

    def compute(self, *arrays: LazyArray) -> tuple[npt.NDArray[Any], ...]:
        """Computes lazy arrays together, and returns their elements. A job that several of them need runs once."""
        planned = plan([array.ref.key for array in arrays])
        stages = zip(planned.stages, self._submit_plan(planned), strict=True)
        outputs = {key: future.result()[stage.makes[key]] for stage, future in stages for key in stage.wanted}
        return tuple(restore(outputs[array.ref.key], array.like) for array in arrays)

    def cancel(self, jobs: Iterable[str | Future[Any]] = (), *, labels: Mapping[str, str] | None = None) -> None:
        """Orders the workers to cancel jobs: those with these ids, and those that have all of these labels.

        Returns when the broker has the order on disk. The futures end with `JobCancelled` when the workers answer.
        Raises `CancelError` if the broker does not take the order.
        """
        ids = [job.job_id if isinstance(job, Future) else job for job in jobs]
        if ids or labels:
            self._connected().cancel(ids, labels)

    def batch(self, **options: Any) -> Batch:
        """Returns a batch: a `with` block whose jobs belong together. They share options, and can be cancelled
        together.

        `options` are those of `kernel.options`, for jobs whose kernels have none of their own. The end of the block
        waits for the jobs.
        """
        return Batch(self, Options().replace(**options))

    def session(
        self,
        memory: str | int,
        *,
        pool: str | None = None,
        time_limit: str | float | None = None,
        idle_limit: str | float | None = None,
        queue_limit: str | float | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        requires: Mapping[str, Any] | None = None,
        library: str | os.PathLike[str] | None = None,
    ) -> Session:
        """Returns a session: a `with` block in which this process uses the GPU of a worker.

        Libraries that call CUDA's driver API, such as numba-cuda, PyCUDA and tinygrad, then run unchanged. Programs
        with NVIDIA's CUDA runtime, such as those of PyTorch and CuPy, do not. Open the session before the first CUDA
        call of the process. A process has one session.

        `memory` is the device memory to lease, such as ``"8GiB"`` or a number of bytes. `time_limit` is the longest
        time for which the session is open, `idle_limit` the longest time without a driver call or a running kernel,
        and `queue_limit` the longest time to wait for a worker. By default, the pool sets them. `name`, `labels` and
        `requires` are those of `kernel.options`.

        `library` is gpufleet's driver library. By default it is that of ``GPUFLEET_SESSION_LIBRARY``, else that of the
        package, else that beside the command ``gpufleet``. Raises `FileNotFoundError` if it is missing.
        """
        from gpufleet._session import session_of  # noqa: PLC0415

        return session_of(
            self,
            memory,
            idle_limit=idle_limit,
            library=library,
            labels=labels,
            requires=requires,
            pool=pool,
            time_limit=time_limit,
            queue_limit=queue_limit,
            name=name,
        )

    def submit_program(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        env: str | None = None,
        image: str | None = None,
        variables: Mapping[str, str] | None = None,
        upload: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
        download: str | Iterable[str] = (),
        network: bool = False,
        pool: str | None = None,
        time_limit: str | float | None = None,
        queue_limit: str | float | None = None,
        attempts: int | None = None,
        keep: str | float | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        requires: Mapping[str, Any] | None = None,
        id: str | None = None,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> ProgramFuture:
        """Runs a command on the machine of a worker, with a whole device, and returns a future at once.

        The result has the output and the files of the program. A program that fails raises `ProgramFailed`, whose
        `program` has them and the exit code. `Progress.printed` has the pieces of the output while the program runs.

        `env` names the environment of the workers to run in, or `image` a container image; exactly one of them. The
        command finds the files and folders of `upload` in its working directory, and those that the globs of `download`
        name come back. `variables` are its environment variables: it has none of this process. If `network` is true, it
        may use the network, if the pool allows that.

        The program runs at most once, unless `attempts` allows more, because it may have had effects. `keep` is the
        time for which `gpufleet fetch` has its files and output; by default they are not kept. The other options are
        those of `kernel.options`.
        """
        from gpufleet._program import submit_program  # noqa: PLC0415

        return submit_program(
            self,
            command,
            env=env,
            image=image,
            variables=variables,
            upload=upload,
            download=download,
            network=network,
            pool=pool,
            time_limit=time_limit,
            queue_limit=queue_limit,
            attempts=attempts,
            keep=keep,
            name=name,
            labels=labels or {},
            requires=requires or {},
            id=id,
            on_progress=on_progress,
        )

    def executor(self) -> KernelExecutor:
        """Returns an executor of `concurrent.futures` that takes kernels in place of functions."""
        return KernelExecutor()

    def history(
        self,
        *,
        state: str | Iterable[str] = (),
        kernel: str | None = None,
        pool: str | None = None,
        since: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int = 50,
    ) -> History:
        """Returns the recorded jobs, newest first, up to `limit`. The filters are those of ``gpufleet history``.

        `state` is one state or several. `since` is a time span such as ``2h``, or a local time. It runs the command
        ``gpufleet history``, which reads the database of ``GPUFLEET_DATABASE_URL`` or that of the local fleet. Raises
        `HistoryError` if the command is missing or fails.
        """
        return read_history(
            states=[state] if isinstance(state, str) else state,
            kernel=kernel,
            pool=pool,
            since=since,
            labels=labels or {},
            limit=limit,
            is_local=self._place.source == "local fleet",
        )

    @property
    def is_closed(self) -> bool:
        """Whether the fleet was closed."""
        return self._is_closed

    def attach(self, job_id: str, *, read: bool = True, pool: str | None = None) -> Future[Outputs]:
        """Returns a future for a job that an earlier program submitted with the same `client` name.

        Its result has the outputs by name. The broker keeps a reply until a program has received it, even if that
        program never asks for the result. If the broker has no reply for the job, the future never ends, so give
        `result` a timeout. If `read` is false, outputs in the blob store stay there, and the result has a `RemoteArray`
        for each of them. `pool` is the pool of the job, for its progress. Raises `AttachError` if the fleet has no
        `client` name.
        """
        return self._connected().attach(job_id, read=read, pool=pool)

    def unread(self) -> list[str]:
        """Returns the ids of jobs whose replies have arrived and were not taken. The fleet needs a `client` name."""
        return self._connected().unread()

    def replies_waiting(self, client: str) -> int | None:
        """Returns how many replies wait for a `client` name that no program uses at the moment.

        None if the broker has no replies for this name: they have expired, were deleted, or never existed.
        """
        return self._connected().replies_waiting(client)

    def delete_replies(self, client: str) -> None:
        """Deletes the replies of a `client` name that is no longer used. By default they expire after a week."""
        self._connected().delete_replies(client)

    def close(self, *, wait: bool = False, timeout: float = CLOSE_SECONDS) -> None:
        """Waits until the broker has confirmed everything that was sent, and closes the connection.

        If `wait` is true, it first waits for the open futures. Otherwise these end with `FleetClosed`, and their jobs
        keep running. `timeout` is the time in seconds for the confirmations. Closing twice is harmless.
        """
        connection = self._connection
        self._is_closed = True
        if connection is None or connection.is_inherited:
            return
        if wait:
            # A job that needs others is one of them before it is submitted, and its job is open before that ends.
            while open_ := connection.open_futures():
                for future in open_:
                    # The caller has the future with its outcome.
                    future._wait()
        connection.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._cancels_after(error):
            try:
                self._cancel_open()
            except CancelError as problem:
                error.add_note(f"the open jobs of the fleet were not cancelled: {problem}")
        self.close(wait=error is None)

    def __repr__(self) -> str:
        place = self._place
        client = self._connection.client_name if self._connection else "not connected"
        return f"<gpufleet.Fleet {redacted(place.url)} from the {place.source}, client {client}>"

    def __getstate__(self) -> Settings:
        return self._settings.without_secrets()

    def __setstate__(self, settings: Settings) -> None:
        """Restores the settings. The first use connects."""
        self._begin(settings)

    def _begin(self, settings: Settings) -> None:
        self._settings = settings
        self._environment = surroundings(settings.profile, broker=settings.url is None)
        self._place = place_of(settings, self._environment)
        self._lock = threading.Lock()
        self._lock_pid = os.getpid()
        self._connection: Connection | None = None
        self._is_closed = False

    def _connected(self) -> Connection:
        """Returns the connection of this process, and opens it if necessary."""
        connection = self._connection
        if connection is not None and not connection.is_inherited:
            return connection
        if self._is_closed:
            raise FleetClosed("the fleet was closed; create another Fleet")
        if self._lock_pid != os.getpid():
            # Another thread may have held the lock in the parent.
            self._lock, self._lock_pid = threading.Lock(), os.getpid()
        with self._lock:
            if self._connection is None or self._connection.is_inherited:
                self._connection = Connection(self._settings, self._place, self._environment)
            return self._connection

    def _cancel_open(self) -> None:
        connection = self._connection
        if connection is not None and not connection.is_inherited and (open_ := connection.open_futures()):
            for future in open_:
                future._expects_cancellation = True
            connection.cancel([future._job_id for future in open_ if future._job_id])
            for future in open_:
                future._end_cancelled()

    def _cancels_after(self, error: BaseException) -> bool:
        """Returns whether an exception that leaves a block cancels the block's jobs."""
        is_interrupt = isinstance(error, KeyboardInterrupt) and self._settings.on_interrupt == "cancel"
        return isinstance(error, Exception) or is_interrupt

    def _has_room(self, task: Task) -> bool:
        return self._connected().has_room(task)

    @overload
    def _submit(self, task: Task) -> Future[Outputs]: ...
    @overload
    def _submit(self, task: Task, finish: Callable[[Outputs], R]) -> Future[R]: ...
    def _submit(self, task: Task, finish: Callable[[Outputs], Any] = dict) -> Future[Any]:
        """Submits a job. `finish` turns the outputs by name into the result. The thread that completes futures calls
        it.
        """
        if task.has_refs:
            return self._submit_plan(*planned_for(task, finish))[-1]
        batch = current_batch(self)
        if batch is None:
            return self._connected().submit(task, finish)
        task = dataclasses.replace(task, options=batch._options_of(task.options))
        return _added(batch, [self._connected().submit(task, finish)])[0]

    def _submit_program(self, task: Task) -> ProgramFuture:
        """Submits a host program, whose output is received from its beginning on."""
        from gpufleet._program import FOLLOW_SECONDS, ProgramFuture  # noqa: PLC0415

        batch = current_batch(self)
        if batch is not None:
            task = dataclasses.replace(task, options=task.options.placed_as(batch._options_of(task.options)))
        connection = self._connected()
        connection.follow(_scope.within_program(task.options).pool, FOLLOW_SECONDS)
        future = connection.submit(task, dict, unread=True, kind=ProgramFuture)
        assert isinstance(future, ProgramFuture), "it is of the kind that was asked for"
        return _added(batch, [future])[0]

    def _call(self, task: Task, finish: Callable[[Outputs], R]) -> R:
        """Runs a job and waits for its result."""
        if task.has_refs or current_batch(self) is not None:
            return self._submit(task, finish).result()
        return self._connected().run(task, finish)

    def _submit_plan(self, plan: Plan, finish: Callable[[Outputs], Any] = dict) -> list[Future[Any]]:
        """Submits the jobs of a plan. Returns a future for each, whose result has the outputs by name.

        `finish` makes the result of the last one.
        """
        batch = current_batch(self)
        if batch is not None:
            plan = plan.with_options(batch._options_of)
        futures = submit_plan(self._connected(), plan, finish)
        _added(batch, [future for future, stage in zip(futures, plan.stages, strict=True) if stage.wanted])
        return futures

    def _submit_after(
        self, needs: Sequence[Future[Any]], kernel: Kernel[R], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Future[R]:
        """Submits a job when the futures among its arguments have ended."""
        batch = current_batch(self)
        # The block of the batch may have ended by then.
        kernel = kernel if batch is None else kernel._with_options(batch._options_of(kernel._options))
        kernel = kernel._with_options(_scope.within(kernel._options))

        def submit() -> Future[R]:
            found_args, found_kwargs = with_results(args, kwargs)
            # Outside of the batch, in which the future below stands for the job.
            return Context().run(kernel.submit, *found_args, **found_kwargs)

        future = self._connected().submit_after(needs, submit, kernel._options, own=False)
        return _added(batch, [future])[0]

    def _detach(self, task: Task) -> str:
        return self._connected().detach(task)

    @overload
    def _submit_many(self, tasks: Sequence[Task]) -> list[Future[Outputs]]: ...
    @overload
    def _submit_many(self, tasks: Sequence[Task], finish: Sequence[Callable[[Outputs], R]]) -> list[Future[R]]: ...
    def _submit_many(
        self, tasks: Sequence[Task], finish: Sequence[Callable[[Outputs], Any]] | None = None
    ) -> list[Future[Any]]:
        """Submits jobs that share messages."""
        finishers = [dict] * len(tasks) if finish is None else finish
        if any(task.has_refs for task in tasks):
            return [self._submit(*each) for each in zip(tasks, finishers, strict=True)]
        batch = current_batch(self)
        if batch is not None:
            tasks = [dataclasses.replace(task, options=batch._options_of(task.options)) for task in tasks]
        return _added(batch, self._connected().submit_many(tasks, finishers))

    def _read(self, stored: Stored) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = self._connected().read(stored.digest, stored.dtype, stored.shape)
        return array


def _added(batch: Batch | None, futures: list[F]) -> list[F]:
    if batch is not None:
        batch._add([*futures])
    return futures
