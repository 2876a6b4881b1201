"""The parts of the Airflow provider that need no Airflow."""

from __future__ import annotations

import doctest
import json
from typing import Any

import numpy as np
import pytest
from fake_fleet import FakeFleet

import gpufleet as gf
import gpufleet.airflow
from gpufleet._errors import Failure, failed
from gpufleet._report import RanOn, Timings
from gpufleet._task import Input, Pointer, ProgressCounter, Stored, Task, Zeros
from gpufleet.airflow import _identity, _report
from gpufleet.airflow._call import OUTPUTS_MAX, KernelCall
from gpufleet.airflow._identity import Try, identity
from gpufleet.airflow._report import event, is_final, report

TRY = Try("daily", "scheduled__2026-11-24", "blur", -1, 1)
URL = "amqp://anna:canary@broker:5672/%2F"
JOB = "01a20b8a-3ca0-7e37-a4c7-a6a826bc414c"
DIGEST = "sha256:" + "0f" * 32
STORED = {"digest": DIGEST, "dtype": "f32", "shape": [4]}
SCALE = 'extern "C" __global__ void scale(const float *x, double *y, float a, unsigned n) { y[0] = a * x[n - 1]; }'


class DetachedFleet(FakeFleet):
    def _detach(self, task: Task) -> str:
        self.tasks.append(task)
        return task.options.id or ""


def detached(call: KernelCall) -> Task:
    fleet = DetachedFleet()
    assert call.detach(fleet, JOB) == JOB
    return fleet.task


@pytest.mark.parametrize("module", [_identity, _report])
def test_the_examples_of_the_docstrings_run(module: Any) -> None:
    result = doctest.testmod(module)
    assert (result.failed, result.attempted > 0) == (0, True)


def test_a_try_has_one_job_and_others_have_other_jobs() -> None:
    assert identity(TRY, URL) == identity(Try(*TRY), URL)
    others = [
        TRY._replace(dag_id="weekly"),
        TRY._replace(run_id="manual"),
        TRY._replace(task_id="sharpen"),
        TRY._replace(map_index=0),
        TRY._replace(try_number=2),
        TRY._replace(namespace="staging"),
        TRY._replace(dag_id='daily", "scheduled__2026-11-24', run_id="blur"),
    ]
    assert len({identity(each, URL).job_id for each in [TRY, *others]}) == len(others) + 1


def test_a_client_name_begins_with_the_user_and_has_no_secret() -> None:
    user, _, rest = identity(TRY, URL).client.rpartition("-")
    assert (user, len(rest)) == ("anna", 32)
    assert identity(TRY, "amqp://anna%40example.org:canary@broker/").client.startswith("cli-")
    assert identity(TRY, "amqp://broker/").client.startswith("cli-")
    assert "canary" not in repr(identity(TRY, URL))


def test_a_catalog_kernel_takes_numbers_lists_and_stored_arrays() -> None:
    options = {"pool": "team-a", "labels": {"dag": "daily"}, "time_limit": "30s"}
    task = detached(KernelCall("saxpy", {"a": "2.5", "x": STORED, "y": [1, 2, 3, 4]}, options=options))
    assert task.buffers["x"] == Stored(DIGEST, (4,), "f32")
    y = task.buffers["y"]
    assert isinstance(y, Input) and y.array.tolist() == [1, 2, 3, 4]
    assert (task.options.id, task.options.pool, task.options.time_limit) == (JOB, "team-a", 30.0)


def test_a_template_gives_json() -> None:
    arguments = {"a": "2.5", "x": json.dumps(STORED), "y": '{"zeros": [4], "dtype": "f32"}'}
    task = detached(KernelCall("saxpy", json.dumps(arguments), options='{"priority": "high"}'))  # type: ignore[arg-type]
    assert task.buffers == {"x": Stored(DIGEST, (4,), "f32"), "y": Zeros((4,), "f32")}
    assert task.options.priority == "high"


def test_the_pool_of_the_connection_is_for_calls_that_name_none() -> None:
    arguments = {"a": 2.0, "x": [1], "y": [1]}
    assert detached(KernelCall("saxpy", arguments, pool="night")).options.pool == "night"
    assert detached(KernelCall("saxpy", arguments, options={"pool": "day"}, pool="night")).options.pool == "day"


def test_a_progress_counter_is_json_too() -> None:
    source = 'extern "C" __global__ void k(unsigned long long *steps, float *y) {}'
    call = KernelCall("k", [{"progress": 9}, [0]], source, 1, 1, options='{"pool": "day"}', pool="night")  # type: ignore[arg-type]
    task = detached(call)
    assert task.launches[0].args == (ProgressCounter(9), Pointer("y")) and task.outputs == ("y",)
    assert call.job_pool == task.options.pool == "day"
    with pytest.raises(ValueError, match="total of a progress counter is between 1"):
        detached(KernelCall("k", [{"progress": 0}, [0]], source, 1, 1))


def test_lists_take_the_types_of_the_parameters_in_the_source() -> None:
    arguments = [[1, 2], {"zeros": 2, "dtype": "f64"}, 0.5, 2]
    task = detached(KernelCall("scale", arguments, source=SCALE, grid="[1]", block=32))
    x = task.buffers["x"]
    assert isinstance(x, Input) and x.dtype == "f32" and x.array.tolist() == [1, 2]
    assert task.buffers["y"] == Zeros((2,), "f64") and task.outputs == ("y",)
    assert (task.launches[0].grid, task.launches[0].block) == ((1,), (32,))


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (KernelCall("saxpy", {"a": 1.0, "x": np.ones(4), "y": [0]}), "x is a ndarray; pass a number"),
        (KernelCall("saxpy", {"a": "{{ a }}", "x": [1], "y": [0]}), r"not JSON; in a template, write \{\{ value"),
        (KernelCall("saxpy", [1.0, [1], [0]]), "must be a mapping of names"),
        (KernelCall("scale", {"x": [1]}, source=SCALE, grid=1, block=1), "must be a list in the order"),
        (KernelCall("scale", [[1], [1], 1.0, 1], source=SCALE), "needs a grid and a block"),
        (KernelCall("saxpy", {"a": 1.0, "x": {"zeros": [4], "dtype": "f33"}, "y": [0]}), "x is a dict; pass a number"),
    ],
)
def test_wrong_arguments_are_refused_unsent(call: KernelCall, problem: str) -> None:
    fleet = DetachedFleet()
    with pytest.raises((TypeError, ValueError), match=problem):
        call.detach(fleet, JOB)
    assert fleet.tasks == []


def test_a_kernel_with_too_many_outputs_is_refused() -> None:
    count = OUTPUTS_MAX + 1
    source = f'extern "C" __global__ void many({", ".join(f"float *y{index}" for index in range(count))}) {{}}'
    with pytest.raises(ValueError, match="17 outputs, but a task keeps at most 16"):
        detached(KernelCall("many", [[0]] * count, source=source, grid=1, block=1))


def test_the_largest_result_has_less_than_4_kib() -> None:
    shape = (1 << 20, 1 << 20, 1, 1, 1, 1, 1, 1)
    outputs = {f"{'y' * 40}{index}": gf.RemoteArray(Stored("sha256:" + "f" * 64, shape, "bool")) for index in range(16)}
    timings = Timings(1e6, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6, (1e6 / 3,), 1e6, 1e6 / 3, 1 << 40, True)
    result = report(JOB, outputs, timings, RanOn("w" * 100, 1000, "n" * 100, True))
    assert len(json.dumps(result)) <= 4096
    assert {name: gf.RemoteArray.from_dict(each) for name, each in result["outputs"].items()} == outputs
    assert len(json.dumps(event(identity(TRY, URL), None))) < 200


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (failed(JOB, "failed", Failure("user", "compile_error", "no", None, None)), True),
        (failed(JOB, "failed", Failure("timeout", "time_limit", "late", None, None)), False),
        (failed(JOB, "failed", Failure("infrastructure", "executor_lost", "gone", None, None)), False),
        (gf.InvalidJob("no"), True),
        (TypeError("no"), True),
        (gf.NoQueue("none"), False),
        (gf.ConnectError("none"), False),
        (gf.WaitTimeout("late"), False),
    ],
)
def test_only_errors_of_the_task_itself_end_the_retries(error: Exception, final: bool) -> None:
    assert is_final(error) is final


def test_a_stored_array_in_json_is_checked() -> None:
    for wrong in ({}, {**STORED, "dtype": "f33"}, {**STORED, "more": 1}, {**STORED, "shape": 4}):
        with pytest.raises(ValueError, match="is not a stored array"):
            gf.RemoteArray.from_dict(wrong)


def test_names_that_need_airflow_say_how_to_install_it() -> None:
    with pytest.raises(ImportError, match=r"pip install 'gpufleet\[airflow\]'"):
        gpufleet.airflow.GpufleetHook  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'Other'"):
        gpufleet.airflow.Other  # noqa: B018
    assert gpufleet.airflow.get_provider_info()["connection-types"][0]["connection-type"] == "gpufleet"
