"""The operator that runs a kernel as a task."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from airflow.sdk import BaseOperator
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferralTimeout

from gpufleet._errors import GpufleetError
from gpufleet._fleet import Fleet
from gpufleet._logged import logged_result
from gpufleet.airflow._call import KernelCall
from gpufleet.airflow._identity import Identity
from gpufleet.airflow._report import is_final, references, report
from gpufleet.airflow.hook import GpufleetHook
from gpufleet.airflow.trigger import GpufleetTrigger

__all__ = ["GpufleetKernelOperator"]

REPLY_SECONDS = 60.0
"""The time to receive a reply that the broker has."""
DEFERRED_SECONDS_MIN: float = conf.getfloat("workers", "min_heartbeat_interval", fallback=5.0) + 2.0
"""The shortest deferral.

Airflow may notice the end of the process that deferred a task only after the heartbeat interval, and its scheduler a
moment later. It fails a task that has resumed by then.
"""


class GpufleetKernelOperator(BaseOperator):  # type: ignore[misc]
    """Runs a kernel of the catalog, or with `source` one in CUDA C++.

    `arguments` are a mapping for the catalog, and a list in the order of the parameters for CUDA C++, which also needs
    `grid` and `block`. Each is a number, a short list of numbers, a `RemoteArray` or an output of another task of this
    kind, or ``{"zeros": [1024], "dtype": "f32"}``. `options` are those of `kernel.options`, such as `pool`, `labels`
    and `time_limit`.

    The outputs stay in the blob store. The result of the task has their digests, the job's id, its times and its
    device. Each output is also an XCom of its own name, so ``task.output["y"]`` is an argument for another task.
    """

    template_fields: Sequence[str] = ("kernel", "source", "arguments", "grid", "block", "options")
    template_fields_renderers: ClassVar[dict[str, str]] = {"arguments": "json", "options": "json"}

    def __init__(
        self,
        *,
        kernel: str,
        arguments: Mapping[str, Any] | Sequence[Any],
        source: str | None = None,
        grid: Any = None,
        block: Any = None,
        options: Mapping[str, Any] | None = None,
        gpufleet_conn_id: str = GpufleetHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kernel = kernel
        self.arguments = arguments
        self.source = source
        self.grid = grid
        self.block = block
        self.options: Mapping[str, Any] = options or {}
        self.gpufleet_conn_id = gpufleet_conn_id
        self.deferrable = deferrable
        self.poll_interval = poll_interval
        self._running: Identity | None = None

    @cached_property
    def hook(self) -> GpufleetHook:
        return GpufleetHook(self.gpufleet_conn_id)

    def execute(self, context: Any) -> dict[str, Any]:
        """Submits the job under the id of the try, so that a repetition is the same job. Then defers, or waits."""
        job = self.hook.identity(context["ti"])
        if not self.deferrable:
            return self._run(context, job)
        self._submit(job)
        self.defer(
            trigger=GpufleetTrigger(
                job.job_id,
                job.client,
                self.gpufleet_conn_id,
                self.poll_interval,
                time.time() + DEFERRED_SECONDS_MIN,
                self._call().job_pool,
            ),
            method_name="execute_complete",
            timeout=self.execution_timeout,
        )
        raise AssertionError("defer raises")

    def execute_complete(self, context: Any, event: dict[str, Any]) -> dict[str, Any]:
        """Takes the reply. Fails without a retry if the task itself is wrong."""
        job = Identity(event["job_id"], event["client"])
        if not event["replied"]:
            raise AirflowException(f"the broker has no reply to job {job.job_id}, which has expired or was taken")
        with self._errors(), self.hook.get_conn(job.client) as fleet:
            return self._take(context, fleet, job, REPLY_SECONDS)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        """Cancels the job if the task has reached its `execution_timeout` while it was deferred."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            self._cancel(self.hook.identity(context["ti"]))
            raise

    def on_kill(self) -> None:
        """Cancels the job, because Airflow ends the task while it is not deferred."""
        if self._running is not None:
            self._cancel(self._running)

    def _submit(self, job: Identity) -> None:
        """Submits the job and leaves it to the trigger."""
        with self._errors(), self.hook.get_conn(job.client) as fleet:
            self._detach(fleet, job)
        self._running = None

    def _run(self, context: Any, job: Identity) -> dict[str, Any]:
        """Submits the job and waits for it."""
        with self._errors(), self.hook.get_conn(job.client) as fleet:
            self._detach(fleet, job)
            return self._take(context, fleet, job, None)

    def _detach(self, fleet: Fleet, job: Identity) -> None:
        self._require_store()
        self._running = job
        self._call().detach(fleet, job.job_id)
        self.log.info("submitted job %s", job.job_id)

    def _cancel(self, job: Identity) -> None:
        with self.hook.get_conn() as fleet:
            fleet.cancel([job.job_id])
            fleet.delete_replies(job.client)
        self.log.info("cancelled job %s", job.job_id)

    def _require_store(self) -> None:
        if self.hook.blobs is None:
            raise ValueError(
                f"connection {self.gpufleet_conn_id!r} has no blob store, in which tasks keep their outputs; set its"
                " extra field blobs to the store of the workers"
            )

    def _call(self) -> KernelCall:
        return KernelCall(self.kernel, self.arguments, self.source, self.grid, self.block, self.options, self.hook.pool)

    def _take(self, context: Any, fleet: Fleet, job: Identity, timeout: float | None) -> dict[str, Any]:
        future = fleet.attach(job.job_id, read=False, pool=self._call().job_pool)
        try:
            result = logged_result(future, self.log.info, timeout)
            outputs = references(result, fleet)
        finally:
            if future.done():
                fleet.delete_replies(job.client)
        self._running = None
        for name, array in outputs.items():
            context["ti"].xcom_push(key=name, value=array.to_dict())
        return report(job.job_id, outputs, future.timings, future.ran_on)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors in Airflow's terms, which decide whether the task is tried again."""
        try:
            yield
        except (GpufleetError, TypeError, ValueError) as error:
            text = "\n".join([str(error), *getattr(error, "__notes__", ())])
            raise (AirflowFailException if is_final(error) else AirflowException)(text) from error
