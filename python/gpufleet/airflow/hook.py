"""The connection type `gpufleet`."""

from __future__ import annotations

import threading
from typing import Any
from urllib.parse import quote

from airflow.sdk import BaseHook

from gpufleet._errors import GpufleetError
from gpufleet._fleet import Fleet
from gpufleet._settings import redacted
from gpufleet.airflow._identity import Identity, Try, identity

__all__ = ["GpufleetHook"]

TEST_SECONDS = 10.0
"""The time for the test of a connection."""


class GpufleetHook(BaseHook):  # type: ignore[misc]
    """A fleet as an Airflow connection describes it.

    Host, port, login, password and schema are those of the broker; the schema is the virtual host. The extra fields are
    `blobs`, the blob store of the workers, `tls`, `pool` and `namespace`. The keys of a bucket come from the
    environment, as for other S3 clients.
    """

    conn_name_attr = "gpufleet_conn_id"
    default_conn_name = "gpufleet_default"
    conn_type = "gpufleet"
    hook_name = "gpufleet"

    def __init__(self, gpufleet_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.gpufleet_conn_id = gpufleet_conn_id
        self._connection: Any = None

    @classmethod
    async def of(cls, gpufleet_conn_id: str) -> GpufleetHook:
        """A hook with its connection, for a trigger: the event loop of a triggerer must not wait for Airflow."""
        hook = cls(gpufleet_conn_id)
        hook._connection = await cls.aget_connection(gpufleet_conn_id)
        return hook

    @property
    def connection(self) -> Any:
        """The Airflow connection."""
        if self._connection is None:
            self._connection = self.get_connection(self.gpufleet_conn_id)
        return self._connection

    @property
    def url(self) -> str:
        """The AMQP URL of the broker, with its password."""
        conn = self.connection
        if not conn.host:
            raise ValueError(f"connection {self.gpufleet_conn_id!r} has no host; give it the host of RabbitMQ")
        login = f"{quote(conn.login, safe='')}:{quote(conn.password or '', safe='')}@" if conn.login else ""
        scheme, port = ("amqps", 5671) if self._extra.get("tls") else ("amqp", 5672)
        host = f"[{conn.host}]" if ":" in conn.host else conn.host
        return f"{scheme}://{login}{host}:{conn.port or port}/{quote(conn.schema or '/', safe='')}"

    @property
    def blobs(self) -> str | None:
        """The blob store."""
        return self._extra.get("blobs") or None

    @property
    def pool(self) -> str | None:
        """The gpufleet pool of jobs that name none."""
        return self._extra.get("pool") or None

    def get_conn(self, client: str | None = None, *, connect_timeout: float | None = None) -> Fleet:
        """Connects to the fleet. Use it in a `with` statement. `client` is a name under which replies are kept."""
        return Fleet(self.url, blobs=self.blobs, client=client, connect_timeout=connect_timeout)

    def identity(self, task_instance: Any) -> Identity:
        """The job of a try."""
        names = (task_instance.dag_id, task_instance.run_id, task_instance.task_id)
        number = -1 if task_instance.map_index is None else task_instance.map_index
        namespace = self._extra.get("namespace") or ""
        return identity(Try(*names, number, task_instance.try_number, namespace), self.url)

    def test_connection(self) -> tuple[bool, str]:
        """Connects to the broker and the blob store, and looks for workers."""
        try:
            with self.get_conn(connect_timeout=TEST_SECONDS) as fleet:
                obstacle = fleet._connected().obstacle(self.pool or "default")
        except (GpufleetError, ValueError) as error:
            return False, str(error)
        place = f"connected to {redacted(self.url)}"
        return True, f"{place}, but {obstacle}" if obstacle else place

    @property
    def _extra(self) -> dict[str, Any]:
        extra: dict[str, Any] = self.connection.extra_dejson
        return extra


_shared: dict[str, Fleet] = {}
_shared_lock = threading.Lock()


def shared_fleet(hook: GpufleetHook) -> Fleet:
    """The connection that all triggers of a process share. It lasts until the process ends."""
    with _shared_lock:
        if hook.gpufleet_conn_id not in _shared:
            _shared[hook.gpufleet_conn_id] = hook.get_conn()
        return _shared[hook.gpufleet_conn_id]
