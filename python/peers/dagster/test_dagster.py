"""The resource and the IO manager on a real fleet."""

# Dagster reads annotations as types, so they must not be texts.
import doctest
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import paced
import pytest

import gpufleet as gf
from gpufleet import _logged
from gpufleet import dagster as gpufleet_dagster
from gpufleet.dagster import BlobIOManager, GpufleetResource, job_metadata

PAGE = Path(__file__).parents[3] / "docs/src/clients/dagster.md"
INTERRUPTED = Path(__file__).with_name("interrupted.py")
WAIT_SECONDS = 60
FLEET = GpufleetResource()
RESOURCES = {"gpufleet": FLEET, "io_manager": BlobIOManager(gpufleet=FLEET)}
X = np.arange(4, dtype=np.float32)


def until(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not look():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)


def states(run: str) -> list[str]:
    """The states of a run's jobs in the ledger."""
    command = shutil.which("gpufleet", path=os.environ.get("GPUFLEET_BIN_DIR"))
    arguments = [str(command), "history", "--label", f"run={run}", "-o", "json"]
    jobs = json.loads(subprocess.run(arguments, check=True, stdout=subprocess.PIPE).stdout)
    return [job["state"] for job in jobs]


@dg.asset
def source() -> np.ndarray:
    return X


@dg.asset
def doubled(gpufleet: GpufleetResource, source: gf.RemoteArray) -> dg.MaterializeResult:
    assert isinstance(source, gf.RemoteArray)
    with gpufleet.connect() as fleet:
        return gpufleet.materialize(fleet.kernel("saxpy").submit(1.0, source, source), note="x + x")


@dg.asset
def read(doubled: np.ndarray) -> np.ndarray:
    return doubled


def test_the_examples_of_the_page_and_the_docstrings_run() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert doctest.testmod(gpufleet_dagster).failed == 0


def test_arrays_go_through_the_store_and_metadata_tell_the_job() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([source, doubled, read], resources=RESOURCES, instance=instance)
        np.testing.assert_array_equal(result.asset_value("read"), 2 * X)
        (materialized,) = result.asset_materializations_for_node("doubled")
        metadata = {name: value.value for name, value in materialized.metadata.items()}
        assert uuid.UUID(metadata["job_id"]) and metadata["gpu_seconds"] > 0
        assert metadata["device"].endswith("(EMULATED)") and metadata["note"] == "x + x"
        stored = gf.RemoteArray.from_dict(metadata["gpufleet_array"])
        assert (stored.shape, metadata["bytes"]) == ((4,), 16)


def test_a_later_run_loads_what_an_earlier_one_stored() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert dg.materialize([source], resources=RESOURCES, instance=instance).success
        later = dg.materialize(
            [source, doubled, read], selection=["doubled", "read"], resources=RESOURCES, instance=instance
        )
        np.testing.assert_array_equal(later.asset_value("read"), 2 * X)


def test_each_partition_has_its_array() -> None:
    partitions = dg.StaticPartitionsDefinition(["2", "3"])

    @dg.asset(partitions_def=partitions)
    def filled(context: dg.AssetExecutionContext) -> np.ndarray:
        return np.full(2, float(context.partition_key))

    @dg.asset(partitions_def=partitions)
    def copied(filled: np.ndarray) -> np.ndarray:
        return filled

    with dg.DagsterInstance.ephemeral() as instance:
        for key in ("2", "3"):
            dg.materialize([filled], partition_key=key, resources=RESOURCES, instance=instance)
        for key in ("2", "3"):
            later = dg.materialize(
                [filled, copied], selection=["copied"], partition_key=key, resources=RESOURCES, instance=instance
            )
            assert later.asset_value("copied").tolist() == [float(key)] * 2


def test_ops_pass_arrays_too() -> None:
    @dg.op
    def make() -> np.ndarray:
        return X

    @dg.op
    def take(array: gf.RemoteArray) -> gf.RemoteArray:
        return array

    @dg.op
    def total(array: np.ndarray) -> np.ndarray:
        return array.sum(keepdims=True)

    @dg.job(resource_defs=RESOURCES)
    def summing() -> None:
        total(take(make()))

    assert summing.execute_in_process().output_for_node("total").tolist() == [6.0]


def test_the_log_of_a_run_says_how_far_a_job_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_logged, "LOG_SECONDS", 1.5)

    @dg.asset
    def slow(gpufleet: GpufleetResource) -> dg.MaterializeResult:
        with gpufleet.connect() as fleet:
            return gpufleet.materialize(paced.submit(fleet))

    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize([slow], resources=RESOURCES, instance=instance)
        lines = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert any(re.match(r"job \S+: kernels \d+/20 steps · \d s", line) for line in lines), lines


def test_what_the_io_manager_can_not_keep_is_refused() -> None:
    @dg.asset
    def text() -> str:
        return "text"

    with pytest.raises(TypeError, match="not an array"):
        dg.materialize([text], resources=RESOURCES)
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(dg.DagsterInvariantViolationError, match="no array"):
        dg.materialize([source, doubled], selection=["doubled"], resources=RESOURCES, instance=instance)


def test_an_error_in_the_step_cancels_its_jobs() -> None:
    run = uuid.uuid4().hex

    @dg.asset
    def failing(gpufleet: GpufleetResource) -> None:
        with gpufleet.connect() as fleet:
            fleet.kernel("monte_carlo_pi").options(labels={"run": run}).submit(10**15)
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        dg.materialize([failing], resources=RESOURCES)
    until(lambda: states(run) == ["cancelled"])


def test_several_jobs_have_one_summary() -> None:
    with FLEET.connect() as fleet:
        futures = [fleet.kernel("saxpy").submit(1.0, X, X) for _ in range(3)]
        seconds = sum(future.timings.kernel for future in futures if future.result() is not None and future.timings)
    metadata = job_metadata(*futures)
    assert (metadata["jobs"], metadata["gpu_seconds"]) == (3, seconds) and "job_id" not in metadata


@pytest.mark.parametrize("forward", [True, False])
def test_termination_is_forwarded_if_the_resource_says_so(forward: bool, fleet: gf.Fleet) -> None:
    run = uuid.uuid4().hex
    command = [sys.executable, str(INTERRUPTED), run, str(forward)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
        assert program.stdout is not None
        job_id = program.stdout.readline().strip()
        until(lambda: states(run) == ["running"])
        program.send_signal(signal.SIGTERM)
        assert program.wait(WAIT_SECONDS) != 0
    if forward:
        until(lambda: states(run) == ["cancelled"])
        return
    assert states(run) == ["running"]
    fleet.cancel([job_id])
    until(lambda: states(run) == ["cancelled"])
