"""The names of a job: its id and the client name to which its reply goes.

Both are made of what Airflow calls the try, so that every process that works on the try finds the same job.
"""

from __future__ import annotations

import json
import re
import uuid
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

__all__ = ["Identity", "Try", "identity"]

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "airflow.gpufleet")
_CLIENT_USER = re.compile(r"[A-Za-z0-9_-]{1,31}")
"""The part of a client name that names its user. RabbitMQ's permissions can confine a user to such names."""


class Try(NamedTuple):
    """One try of a task. A namespace tells several Airflow installations apart."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int
    namespace: str = ""


class Identity(NamedTuple):
    """The job of a try."""

    job_id: str
    client: str
    """A client name for this job alone. The broker keeps the reply under it until the task takes it."""


def identity(of: Try, url: str) -> Identity:
    """The job of a try, at the broker with this URL.

    >>> first = Try("daily", "scheduled__2026-11-24", "blur", -1, 1)
    >>> identity(first, "amqp://anna:secret@broker/")
    Identity(job_id='ffee4fb3-69cf-5e6e-a13a-549bb59424cb', client='anna-ffee4fb369cf5e6ea13a549bb59424cb')
    """
    # As JSON, because names that are merely joined could give the same text for different tries.
    job = uuid.uuid5(_NAMESPACE, json.dumps(of))
    user = unquote(urlsplit(url).username or "")
    return Identity(str(job), f"{user if _CLIENT_USER.fullmatch(user) else 'cli'}-{job.hex}")
