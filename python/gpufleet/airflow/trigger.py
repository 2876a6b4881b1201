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
from gpufleet.airflow._identity import Identity
from gpufleet.airflow._report import event
from gpufleet.airflow.hook import GpufleetHook, shared_fleet

__all__ = ["GpufleetTrigger"]


class GpufleetTrigger(BaseTrigger):  # type: ignore[misc]
    """Fires once the reply to a job has arrived, but not before the time `earliest`, in seconds since 1970."""

    def __init__(
        self, job_id: str, client: str, gpufleet_conn_id: str, poll_interval: float = 1.0, earliest: float = 0.0
    ) -> None:
        super().__init__()
        self.job: Identity = Identity(job_id, client)
        self.gpufleet_conn_id = gpufleet_conn_id
        self.poll_interval = poll_interval
        self.earliest = earliest

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments, for another process."""
        arguments = {
            **self.job._asdict(),
            "gpufleet_conn_id": self.gpufleet_conn_id,
            "poll_interval": self.poll_interval,
            "earliest": self.earliest,
        }
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Waits for the reply."""
        hook = await GpufleetHook.of(self.gpufleet_conn_id)
        waiting = await self._waiting(hook)
        if waiting == 0:
            self.log.info("job %s has no reply yet", self.job.job_id)
        while waiting == 0:
            await asyncio.sleep(self.poll_interval)
            waiting = await self._waiting(hook)
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

    def _cancel(self, hook: GpufleetHook) -> None:
        fleet = shared_fleet(hook)
        fleet.cancel([self.job.job_id])
        fleet.delete_replies(self.job.client)
        self.log.info("cancelled job %s, because a user cleared or marked its task", self.job.job_id)
