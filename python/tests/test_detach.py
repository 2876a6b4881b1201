"""Jobs whose results a later program takes, and jobs with an id of the caller's own."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Callable

import numpy as np
import pytest

import gpufleet as gf
from gpufleet.testing._local import _command

X = np.arange(4, dtype=np.float32)
LARGE = np.ones(1 << 20, np.float32)


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def test_a_later_program_takes_the_result_of_a_detached_job(fleet: gf.Fleet) -> None:
    name = f"gpufleet-{uuid.uuid4().hex}"
    assert fleet.replies_waiting(name) is None
    with gf.Fleet(client=name) as first:
        job_id = first.kernel("saxpy").detach(2.0, X, X)
    until(lambda: fleet.replies_waiting(name))
    with gf.Fleet(client=name) as second:
        np.testing.assert_array_equal(second.attach(job_id).result(timeout=60)["y"], 3 * X)
    assert fleet.replies_waiting(name) == 0
    fleet.delete_replies(name)
    assert fleet.replies_waiting(name) is None


def test_large_outputs_stay_in_the_store_if_they_are_not_read(fleet: gf.Fleet) -> None:
    name = f"gpufleet-{uuid.uuid4().hex}"
    with gf.Fleet(client=name) as named:
        job_id = named.kernel("saxpy").detach(2.0, LARGE, LARGE)
        y = named.attach(job_id, read=False).result(timeout=60)["y"]
    assert isinstance(y, gf.RemoteArray) and y.shape == LARGE.shape
    np.testing.assert_array_equal(y.get(fleet), 3 * LARGE)
    fleet.delete_replies(name)


def test_a_detached_job_that_is_refused_raises(fleet: gf.Fleet) -> None:
    with gf.Fleet(client=f"gpufleet-{uuid.uuid4().hex}") as named, pytest.raises(gf.NoQueue, match="elsewhere"):
        named.kernel("saxpy", pool="elsewhere").detach(2.0, X, X)


def test_a_job_has_the_id_that_the_caller_gives(fleet: gf.Fleet) -> None:
    job_id = str(uuid.uuid5(uuid.NAMESPACE_URL, uuid.uuid4().hex))
    saxpy = fleet.kernel("saxpy").options(id=job_id)
    first = saxpy.submit(2.0, X, X)
    np.testing.assert_array_equal(first.result(timeout=60), 3 * X)
    assert first.job_id == job_id
    with pytest.raises(gf.InvalidJob, match="is not a UUID"):
        saxpy.options(id="seven").submit(2.0, X, X)
    with pytest.raises(ValueError, match="names one job"):
        saxpy.map([X, X], a=1.0, y=X)


def recorded(job_id: str) -> list[dict[str, object]]:
    """The rows of a job in the ledger."""
    run = [_command(), "history", "-o", "json", "--limit", "1000"]
    rows: list[dict[str, object]] = json.loads(subprocess.run(run, check=True, stdout=subprocess.PIPE).stdout)
    return [row for row in rows if row["job_id"] == job_id and row["state"] == "succeeded"]


def test_an_id_that_is_submitted_twice_is_one_job(environment: None) -> None:
    job_id = str(uuid.uuid5(uuid.NAMESPACE_URL, uuid.uuid4().hex))
    for _ in range(2):
        with gf.Fleet() as fleet:
            np.testing.assert_array_equal(fleet.kernel("saxpy").options(id=job_id)(2.0, X, X), 3 * X)
    until(lambda: recorded(job_id))
    assert len(recorded(job_id)) == 1
