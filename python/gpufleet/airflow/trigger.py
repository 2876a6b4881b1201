"""The trigger that waits for the reply to a job.

It only looks whether the reply has arrived and does not take it. The broker keeps the reply until the task takes it,
so a triggerer may die at any moment, and another one finds the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from gpufleet._errors import GpufleetError
from gpufleet._logged import LOG_SECONDS
from gpufleet._progress import Course
from gpufleet.airflow._identity import Identity
from gpufleet.airflow._report import event
from gpufleet.airflow.hook import GpufleetHook, shared_fleet

__all__ = ["GpufleetTrigger"]

PROGRESS_SECONDS = 1.5
"""The time to wait for the progress of a job. Workers send it every second while a job runs."""


class GpufleetTrigger(BaseTrigger):  # type: ignore[misc]
    """Fires once the reply to a job has arrived, but not before the time `earliest`, in seconds since 1970.

    Every 30 seconds it logs how far the job is.
    """

    def __init__(
        self,
        job_id: str,
        client: str,
        gpufleet_conn_id: str,
        poll_interval: float = 1.0,
        earliest: float = 0.0,
        pool: str | None = None,
    ) -> None:
        super().__init__()
        self.job: Identity = Identity(job_id, client)
        self.gpufleet_conn_id = gpufleet_conn_id
        self.poll_interval = poll_interval
        self.earliest = earliest
        self.pool = pool
        self._course = Course()
        self._may_follow = True

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments, for another process."""
        arguments = {
            **self.job._asdict(),
            "gpufleet_conn_id": self.gpufleet_conn_id,
            "poll_interval": self.poll_interval,
            "earliest": self.earliest,
            "pool": self.pool,
        }
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Waits for the reply."""
        hook = await GpufleetHook.of(self.gpufleet_conn_id)
        waiting = await self._waiting(hook)
        if waiting == 0:
            self.log.info("job %s has no reply yet", self.job.job_id)
        logged = time.monotonic()
        while waiting == 0:
            await asyncio.sleep(self.poll_interval)
            waiting = await self._waiting(hook)
            if waiting == 0 and time.monotonic() - logged >= LOG_SECONDS:
                logged = time.monotonic()
                await self._log_progress(hook)
        await asyncio.sleep(max(0.0, self.earliest - time.time()))
        yield TriggerEvent(event(self.job, waiting))

    async def on_kill(self) -> None:
        """Cancels the job, because a user cleared the task or marked it. A triggerer that stops does not call this."""
        hook = await GpufleetHook.of(self.gpufleet_conn_id)
        await asyncio.to_thread(self._cancel, hook)

    async def _waiting(self, hook: GpufleetHook) -> int | None:
        """The number of replies; 0 also while the broker can't be asked, because it comes back with its queues."""
        try:
            return await asyncio.to_thread(lambda: shared_fleet(hook).replies_waiting(self.job.client))
        except GpufleetError as error:
            self.log.warning("could not look for the reply to job %s; trying again: %s", self.job.job_id, error)
            return 0

    async def _log_progress(self, hook: GpufleetHook) -> None:
        """Logs how far the job is. A job that does not run yet has no progress."""
        if not self._may_follow:
            return
        try:
            update = await asyncio.to_thread(
                lambda: shared_fleet(hook)._connected().next_progress(self.job.job_id, self.pool, PROGRESS_SECONDS)
            )
        except GpufleetError as error:
            self._may_follow = False
            self.log.warning("the progress of job %s is not logged: %s", self.job.job_id, error)
            return
        if update is not None and (progress := self._course.take(update)) is not None:
            self.log.info("job %s: %s", self.job.job_id, progress)

    def _cancel(self, hook: GpufleetHook) -> None:
        fleet = shared_fleet(hook)
        fleet.cancel([self.job.job_id])
        fleet.delete_replies(self.job.client)
        self.log.info("cancelled job %s, because a user cleared or marked its task", self.job.job_id)
