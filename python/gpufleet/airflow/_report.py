"""What a task leaves in Airflow's database: small JSON, with digests in place of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpufleet._errors import InvalidJob, JobFailed
from gpufleet._remote import RemoteArray
from gpufleet.airflow._identity import Identity

if TYPE_CHECKING:
    from gpufleet._fleet import Fleet
    from gpufleet._report import RanOn, Timings

__all__ = ["event", "is_final", "references", "report"]


def event(job: Identity, waiting: int | None) -> dict[str, Any]:
    """The event of a trigger. `waiting` is the number of replies; None if the broker keeps none for the job.

    >>> event(Identity("7", "anna-7"), 1)
    {'job_id': '7', 'client': 'anna-7', 'replied': True}
    """
    return {**job._asdict(), "replied": waiting is not None}


def references(outputs: Mapping[str, Any], fleet: Fleet) -> dict[str, RemoteArray]:
    """The outputs of a job as arrays in the blob store. Those that came with the reply are stored now."""
    return {name: array if isinstance(array, RemoteArray) else fleet.put(array) for name, array in outputs.items()}


def report(
    job_id: str, outputs: Mapping[str, RemoteArray], timings: Timings | None, ran_on: RanOn | None
) -> dict[str, Any]:
    """The result of a task.

    >>> report("7", {}, None, None)
    {'job_id': '7', 'outputs': {}, 'seconds': None, 'device': None}
    """
    return {
        "job_id": job_id,
        "outputs": {name: array.to_dict() for name, array in outputs.items()},
        "seconds": timings and {"queue": timings.queue, "kernel": timings.kernel, "total": timings.total},
        "device": ran_on and {"worker": ran_on.worker, "name": ran_on.device_name, "emulated": ran_on.emulated},
    }


def is_final(error: Exception) -> bool:
    """Whether another try would fail in the same way, because the task itself is wrong."""
    if isinstance(error, JobFailed):
        return error.verdict == "user"
    return isinstance(error, InvalidJob | TypeError | ValueError)
