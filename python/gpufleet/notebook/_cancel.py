"""Cancels the jobs of a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from gpufleet import _connection
from gpufleet._dependent import Dependent
from gpufleet._fleet import Fleet
from gpufleet._future import Future

__all__ = ["cancel_jobs", "cancel_labelled", "open_jobs", "waited_for"]

_WAITING = ("gpufleet.", "concurrent.futures.")


def open_jobs() -> list[Future[Any]]:
    """The open jobs of all fleets of this process, in the order of each fleet's submissions."""
    own = [connection for connection in _connection._connections if not connection.is_inherited]
    return [future for connection in own for future in connection.open_futures()]


def cancel_jobs(futures: Iterable[Future[Any]]) -> int:
    """Orders the workers to cancel jobs, one order for each connection. Returns how many were open."""
    found: dict[_connection.Connection, list[Future[Any]]] = {}
    for future in futures:
        if isinstance(future, Dependent):
            # It has no id before it is submitted.
            future.cancel()
        elif not future.done():
            future._expects_cancellation = True
            found.setdefault(future._connection, []).append(future)
    for connection, jobs in found.items():
        connection.cancel([job.job_id for job in jobs])
    return sum(job._end_cancelled() for jobs in found.values() for job in jobs)


def cancel_labelled(fleet: Fleet, labels: Mapping[str, str]) -> None:
    """Orders the workers to cancel all jobs of the fleet that have these labels."""
    # The order is for jobs that were sent before it. Those of other connections of this process may still be on their
    # way to the broker.
    for job in open_jobs():
        if not isinstance(job, Dependent) and labels.items() <= job._options.labels.items():
            job._connection.wait_confirmed(job._token, None)
    fleet.cancel(labels=labels)


def waited_for(trace: TracebackType | None) -> set[Future[Any]]:
    """The futures for which an interrupted program waited: those in the hands of the functions that wait."""
    found: set[Future[Any]] = set()
    while trace is not None:
        frame = trace.tb_frame
        if str(frame.f_globals.get("__name__", "")).startswith(_WAITING):
            for value in frame.f_locals.values():
                many = value if isinstance(value, list | tuple | set) else [value]
                found.update(each for each in many if isinstance(each, Future))
        trace = trace.tb_next
    return found
