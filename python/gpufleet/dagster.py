"""Dagster: a resource that connects to a fleet, and an IO manager that keeps arrays in the blob store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

try:
    from dagster import (
        AssetRecordsFilter,
        ConfigurableIOManager,
        ConfigurableResource,
        DagsterEventType,
        DagsterExecutionInterruptedError,
        DagsterInvariantViolationError,
        InputContext,
        MaterializeResult,
        MetadataValue,
        OutputContext,
        get_dagster_logger,
    )
except ModuleNotFoundError as _error:
    raise ImportError("gpufleet.dagster needs Dagster; install it with: pip install 'gpufleet[dagster]'") from _error

from gpufleet._fleet import Fleet
from gpufleet._future import Future
from gpufleet._logged import logged_result
from gpufleet._remote import RemoteArray

__all__ = ["BlobIOManager", "GpufleetResource", "job_metadata"]

STORED = "gpufleet_array"
"""The key of the metadata that says where an array is."""


class GpufleetResource(ConfigurableResource):  # type: ignore[misc]
    """A connection to a fleet, as a Dagster resource. `url` has the same default as that of `gpufleet.Fleet`.

    Pass a URL with a password by `EnvVar`, because Dagster shows other configuration in its UI.
    """

    url: str | None = None
    blobs: str | None = None
    """The blob store of the workers. By default that of `gpufleet.Fleet`."""
    forward_termination: bool = True
    """Whether the open jobs are cancelled if a user ends the run. Otherwise they keep running."""

    @contextmanager
    def connect(self) -> Iterator[Fleet]:
        """Connects to the fleet until the end of the `with` block. An exception in the block cancels the open jobs."""
        with Fleet(self.url, blobs=self.blobs) as fleet:
            try:
                yield fleet
            except DagsterExecutionInterruptedError:
                if self.forward_termination:
                    fleet._cancel_open()
                raise

    @staticmethod
    def materialize(future: Future[Any], **metadata: Any) -> MaterializeResult[Any]:
        """Waits for a job. Its result becomes the value of the asset, with metadata about the job.

        `metadata` is added to it. Every 30 seconds, the log of the run says how far the job is. Raises the exception
        of a failed job.
        """
        value = logged_result(future, get_dagster_logger("gpufleet").info)
        return MaterializeResult(value=value, metadata={**job_metadata(future), **metadata})


def job_metadata(*futures: Future[Any]) -> dict[str, Any]:
    """Returns metadata about ended jobs: their number, GPU-seconds and devices, and the id of a single job."""
    timings = [future.timings for future in futures if future.timings is not None]
    places = [future.ran_on for future in futures if future.ran_on is not None]
    devices = {f"{place.device_name}{' (EMULATED)' if place.emulated else ''}" for place in places}
    found: dict[str, Any] = {
        "gpu_seconds": sum(timing.kernel for timing in timings),
        "device": ", ".join(sorted(devices)),
        "jobs": len(futures),
    }
    if len(futures) == 1:
        found["job_id"] = futures[0].job_id
    return found


class BlobIOManager(ConfigurableIOManager):  # type: ignore[misc]
    """An IO manager that keeps arrays in the blob store, and their digests in Dagster's event log.

    A parameter that is annotated as `RemoteArray` gets a reference, which kernels take. Any other parameter gets the
    elements.
    """

    gpufleet: GpufleetResource

    def handle_output(self, context: OutputContext, obj: object) -> None:
        """Stores an array. A `RemoteArray` is in the store already."""
        if context.mapping_key is not None:
            raise DagsterInvariantViolationError(
                f"output {context.name!r} is dynamic, and BlobIOManager can not tell its arrays apart; use partitions"
            )
        if isinstance(obj, RemoteArray):
            stored = obj
        else:
            with self.gpufleet.connect() as fleet:
                stored = fleet.put(obj)
        context.add_output_metadata(
            {
                STORED: MetadataValue.json(stored.to_dict()),
                "dtype": stored.dtype.name,
                "shape": str(list(stored.shape)),
                "bytes": stored.dtype.itemsize * int(np.prod(stored.shape)),
            }
        )

    def load_input(self, context: InputContext) -> RemoteArray | npt.NDArray[Any]:
        """Returns the array of an upstream asset or op."""
        stored = RemoteArray.from_dict(_stored(context))
        if context.dagster_type.typing_type is RemoteArray:
            return stored
        with self.gpufleet.connect() as fleet:
            return stored.get(fleet)


def _stored(context: InputContext) -> dict[str, Any]:
    metadata = _of_asset(context) if context.has_asset_key else _of_op(context)
    if STORED not in metadata:
        name = context.asset_key.to_user_string() if context.has_asset_key else context.get_identifier()
        raise DagsterInvariantViolationError(
            f"{name} has no array in the blob store; materialize it with the IO manager BlobIOManager"
        )
    stored: dict[str, Any] = metadata[STORED].value
    return stored


def _of_asset(context: InputContext) -> dict[str, Any]:
    """Returns the metadata of the latest materialization."""
    partitions = [context.asset_partition_key] if context.has_asset_partitions else None
    latest = context.instance.fetch_materializations(AssetRecordsFilter(context.asset_key, partitions), limit=1)
    return dict(latest.records[0].asset_materialization.metadata) if latest.records else {}


def _of_op(context: InputContext) -> dict[str, Any]:
    """Returns the metadata of an op's output in the run that made it."""
    upstream = context.upstream_output
    for entry in reversed(context.instance.all_logs(upstream.run_id, DagsterEventType.HANDLED_OUTPUT)):
        event = entry.dagster_event
        if event.step_key == upstream.step_key and event.event_specific_data.output_name == upstream.name:
            return dict(event.event_specific_data.metadata)
    return {}
