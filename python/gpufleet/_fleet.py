"""A fleet, as a program uses it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import numpy.typing as npt

from gpufleet._arrays import as_input
from gpufleet._catalog import CatalogKernel
from gpufleet._connection import CLOSE_SECONDS, Connection
from gpufleet._errors import CancelError, FleetClosed
from gpufleet._future import Future, Outputs
from gpufleet._kernels import KernelFactories
from gpufleet._remote import RemoteArray
from gpufleet._settings import POOL, Settings, place_of, redacted
from gpufleet._task import Options, Stored, Task

R = TypeVar("R")


class Fleet(KernelFactories):
    """A connection to a fleet.

    `url` is an AMQP URL such as ``amqp://user:password@host:5672/vhost``. Without it, the fleet is that of the
    environment variable ``GPUFLEET_AMQP_URL``, or else that of ``gpufleet local up``. `blobs` is the blob store that
    the workers use, a folder or ``s3://bucket/prefix``, by default ``GPUFLEET_BLOBS`` or the store of the local fleet.

    A fleet is used in a `with` statement, or closed. Leaving the block waits for the open futures, as executors of
    `concurrent.futures` do. Leaving it by an exception cancels their jobs; leaving it by Ctrl-C does neither.

    It may be used by any number of threads. A child made by `os.fork` connects anew when it uses the fleet.
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
    ) -> None:
        store = None if blobs is None else os.fspath(blobs)
        settings = Settings(url, store, client, keep_replies, connect_timeout, confirm_timeout, user_id, affinity)
        self._begin(settings)
        self._connected()

    def kernel(self, name: str, /, **options: Any) -> CatalogKernel:
        """A kernel of the catalog."""
        return CatalogKernel(self, name, self._default_options().replace(**options))

    def put(self, array: object) -> RemoteArray:
        """Stores an array in the blob store once, so that any number of jobs can use it."""
        given = as_input(array)
        shape = given.array.shape
        return RemoteArray(Stored(self._connected().store(given.dtype, shape, given.array), shape, given.dtype))

    def cancel(self, jobs: Iterable[str | Future[Any]] = (), *, labels: Mapping[str, str] | None = None) -> None:
        """Orders the workers to cancel jobs: those with these ids, and those that have all of these labels.

        Returns when the broker has the order on disk. The futures end with `JobCancelled` when the workers answer.
        """
        ids = [job.job_id if isinstance(job, Future) else job for job in jobs]
        if ids or labels:
            self._connected().cancel(ids, labels)

    def attach(self, job_id: str, *, read: bool = True) -> Future[Outputs]:
        """A future for a job that an earlier program submitted with the same `client` name.

        Its result has the outputs by name. The broker keeps a reply until a program has received it, whether or not
        that program asked its future for the result. If the broker has no reply for the job, the future never ends, so
        give `result` a timeout. Without `read`, outputs in the blob store stay there, and the result has a
        `RemoteArray` for each of them.
        """
        return self._connected().attach(job_id, read=read)

    def unread(self) -> list[str]:
        """The jobs whose replies have arrived and were not taken, for a fleet with a `client` name."""
        return self._connected().unread()

    def replies_waiting(self, client: str) -> int | None:
        """The number of replies that wait for a `client` name while no program uses the name.

        None if the broker has no replies of this name: they have expired, were deleted, or never existed.
        """
        return self._connected().replies_waiting(client)

    def delete_replies(self, client: str) -> None:
        """Deletes the replies of a `client` name that no program will use again. Otherwise they expire after a week."""
        self._connected().delete_replies(client)

    def close(self, *, wait: bool = False, timeout: float = CLOSE_SECONDS) -> None:
        """Waits until the broker has everything that was sent, and closes the connection.

        With `wait`, it first waits for the open futures. Otherwise they end with `FleetClosed`, and their jobs run on.
        Closing twice is harmless.
        """
        connection = self._connection
        self._is_closed = True
        if connection is None or connection.is_inherited:
            return
        if wait:
            for future in connection.open_futures():
                # The caller has the future with its outcome.
                future._wait()
        connection.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
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
        """The connection is made by the first use."""
        self._begin(settings)

    def _begin(self, settings: Settings) -> None:
        self._settings = settings
        self._place = place_of(settings)
        self._lock = threading.Lock()
        self._lock_pid = os.getpid()
        self._connection: Connection | None = None
        self._is_closed = False

    def _connected(self) -> Connection:
        """The connection of this process."""
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
                self._connection = Connection(self._settings, self._place)
            return self._connection

    def _cancel_open(self) -> None:
        connection = self._connection
        if connection is not None and not connection.is_inherited and (open_ := connection.open_futures()):
            connection.cancel([future.job_id for future in open_])
            for future in open_:
                future._end_cancelled()

    def _default_options(self) -> Options:
        return Options(pool=os.environ.get(POOL) or None)

    @overload
    def _submit(self, task: Task) -> Future[Outputs]: ...
    @overload
    def _submit(self, task: Task, finish: Callable[[Outputs], R]) -> Future[R]: ...
    def _submit(self, task: Task, finish: Callable[[Outputs], Any] = dict) -> Future[Any]:
        """Submits a job. `finish` makes the result of the outputs by name, in the thread that completes futures."""
        return self._connected().submit(task, finish)

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
        return self._connected().submit_many(tasks, [dict] * len(tasks) if finish is None else finish)

    def _read(self, stored: Stored) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = self._connected().read(stored.digest, stored.dtype, stored.shape)
        return array
