"""The provider with a real scheduler, executor, triggerer and API server."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from deployment import Airflow, until
from outcomes import ended_jobs_of, jobs_of, outcomes
from scenarios import CONNECTION

import gpufleet as gf
from gpufleet.testing import LocalFleet

XCOM_BYTES_MAX = 4096
WORKER = "gpufleet-w1"


@pytest.fixture
def stopped_worker(airflow: Airflow, gpufleet_local: LocalFleet) -> Iterator[LocalFleet]:
    """The fleet without its worker: jobs wait until `start`."""
    gpufleet_local.kill(WORKER)
    try:
        yield gpufleet_local
    finally:
        gpufleet_local.start()


def until_trigger_waits(airflow: Airflow, dag: str, run: str, task: str = "saxpy") -> None:
    airflow.until_state(dag, run, task, "deferred")
    until("the trigger looks for the reply", lambda: "has no reply yet" in airflow.task_log(dag, run, task))


def test_the_dags_of_the_documentation_run(airflow: Airflow, fleet: gf.Fleet) -> None:
    run = airflow.trigger("scaling")
    airflow.until_state("scaling", run, "largest", "success")
    assert airflow.xcom("scaling", run, "largest") == 60.0
    scaled = airflow.xcom("scaling", run, "scaled")
    y = scaled["outputs"]["y"]
    assert y == airflow.xcom("scaling", run, "scaled", "y")
    assert gf.RemoteArray.from_dict(y).get(fleet).tolist() == [20.0, 40.0, 60.0]
    assert scaled["device"]["emulated"] and scaled["seconds"]["kernel"] > 0
    (job,) = ended_jobs_of(run)
    assert (job["job_id"], job["state"]) == (scaled["job_id"], "succeeded")
    for task in ("doubled", "scaled"):
        sizes = airflow.xcom_bytes("scaling", run, task)
        assert len(sizes) == 2 and max(sizes) <= XCOM_BYTES_MAX


def test_the_dag_of_the_tutorial_waits_for_a_worker_and_counts_the_outliers(
    airflow: Airflow, stopped_worker: LocalFleet
) -> None:
    run = airflow.trigger("stations")
    until("all triggers wait", lambda: airflow.task_log("stations", run, "clean").count("has no reply yet") == 3)
    stopped_worker.start()
    airflow.until_state("stations", run, "report", "success")
    assert airflow.xcom("stations", run, "report") == [500] * 3
    assert outcomes(run) == ["succeeded"] * 3
    assert max(airflow.xcom_bytes("stations", run, "clean")) <= XCOM_BYTES_MAX


def test_the_tutorial_connects_airflow_to_the_local_fleet(airflow: Airflow) -> None:
    local = json.dumps(
        {"GPUFLEET_AMQP_URL": airflow.endpoints["amqp_url"], "GPUFLEET_BLOBS": airflow.endpoints["blobs"]}
    )
    ran = subprocess.run([sys.executable, "-c", CONNECTION], input=local, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == airflow.connection()


def test_a_triggerer_that_is_killed_after_the_reply_costs_nothing(airflow: Airflow, stopped_worker: LocalFleet) -> None:
    run = airflow.trigger("patient")
    until_trigger_waits(airflow, "patient", run)
    stopped_worker.start()
    assert outcomes(run) == ["succeeded"]
    assert airflow.task("patient", run, "saxpy")["state"] == "deferred", "the trigger looks again in an hour"
    airflow.kill_process("triggerer")
    airflow.start_process("triggerer")
    airflow.until_state("patient", run, "saxpy", "success")
    (job,) = jobs_of(run)
    assert (job["state"], job["attempts"]) == ("succeeded", 1)
    assert airflow.xcom("patient", run, "saxpy")["job_id"] == job["job_id"]
    assert airflow.task("patient", run, "saxpy")["try_number"] == 1


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_of_the_triggerer_cancels_no_job(
    airflow: Airflow, stopped_worker: LocalFleet, by: signal.Signals
) -> None:
    run = airflow.trigger("waiting")
    until_trigger_waits(airflow, "waiting", run)
    airflow.kill_process("triggerer", by)
    airflow.start_process("triggerer")
    stopped_worker.start()
    airflow.until_state("waiting", run, "saxpy", "success")
    assert outcomes(run) == ["succeeded"]


def test_clearing_a_deferred_task_cancels_its_job(airflow: Airflow, stopped_worker: LocalFleet) -> None:
    run = airflow.trigger("waiting")
    until_trigger_waits(airflow, "waiting", run)
    cleared = {"dry_run": False, "dag_run_id": run, "task_ids": ["saxpy"], "only_failed": False}
    airflow.call("POST", "dags/waiting/clearTaskInstances", cleared)
    until("the trigger cancels the job", lambda: "cancelled job" in airflow.task_log("waiting", run, "saxpy"))
    stopped_worker.start()
    airflow.until_state("waiting", run, "saxpy", "success")
    assert airflow.task("waiting", run, "saxpy")["try_number"] == 2
    assert outcomes(run) == ["cancelled", "succeeded"]


def test_a_deferred_task_that_times_out_cancels_its_job(airflow: Airflow, stopped_worker: LocalFleet) -> None:
    run = airflow.trigger("limited")
    airflow.until_state("limited", run, "saxpy", "failed")
    stopped_worker.start()
    assert outcomes(run) == ["cancelled"]


def test_marking_a_running_task_cancels_its_job(airflow: Airflow, stopped_worker: LocalFleet) -> None:
    run = airflow.trigger("blocking")
    airflow.until_state("blocking", run, "saxpy", "running")
    until("the job is submitted", lambda: "submitted job" in airflow.task_log("blocking", run, "saxpy"))
    airflow.call("PATCH", f"dags/blocking/dagRuns/{run}/taskInstances/saxpy", {"new_state": "failed"})
    until("the task cancels the job", lambda: "cancelled job" in airflow.task_log("blocking", run, "saxpy"))
    stopped_worker.start()
    assert outcomes(run) == ["cancelled"]


def test_a_task_waits_for_its_job_without_a_trigger(airflow: Airflow) -> None:
    run = airflow.trigger("blocking")
    airflow.until_state("blocking", run, "saxpy", "success")
    assert airflow.xcom("blocking", run, "saxpy")["outputs"]["y"]["shape"] == [3]


def test_the_log_of_a_task_says_how_far_its_job_is(airflow: Airflow) -> None:
    run = airflow.trigger("long")
    for task in ("blocking", "deferred"):
        airflow.until_state("long", run, task, "success")
        job_id = airflow.xcom("long", run, task)["job_id"]
        log = airflow.task_log("long", run, task)
        assert re.search(rf"job {job_id}: kernels \d+/40 steps · \d+ s · about \d+ s left", log), log


def test_a_wrong_kernel_fails_without_a_retry(airflow: Airflow) -> None:
    run = airflow.trigger("wrong")
    failed = airflow.until_state("wrong", run, "source", "failed")
    assert failed["try_number"] == 1, airflow.task_log("wrong", run, "source")
    assert "undeclared" in airflow.task_log("wrong", run, "source")
    assert outcomes(run) == ["failed"]


def test_any_other_failure_is_tried_again_as_another_job(airflow: Airflow) -> None:
    run = airflow.trigger("late")
    assert airflow.until_state("late", run, "samples", "failed")["try_number"] == 2
    assert outcomes(run) == ["failed", "failed"]


def test_mapped_tasks_have_a_job_each_and_share_the_connection_of_the_triggerer(
    airflow: Airflow, stopped_worker: LocalFleet
) -> None:
    alone = airflow.trigger("waiting")
    until_trigger_waits(airflow, "waiting", alone)
    connections = airflow.broker_connections("triggerer")
    assert connections > 0
    run = airflow.trigger("mapped")
    listed = f"dags/mapped/dagRuns/{run}/taskInstances"
    until("all triggers wait", lambda: airflow.task_log("mapped", run, "saxpy").count("has no reply yet") == 3)
    assert airflow.broker_connections("triggerer") == connections
    stopped_worker.start()

    def succeeded() -> bool:
        states = [each["state"] for each in airflow.call("GET", listed)["task_instances"]]
        assert "failed" not in states, airflow.task_log("mapped", run, "saxpy")
        return states == ["success"] * 3

    until("all mapped tasks succeed", succeeded)
    assert outcomes(run) == ["succeeded"] * 3


def test_no_reply_queue_is_left(airflow: Airflow, fleet: gf.Fleet) -> None:
    run = airflow.trigger("waiting")
    airflow.until_state("waiting", run, "saxpy", "success")
    job_id = airflow.xcom("waiting", run, "saxpy")["job_id"]
    assert fleet.replies_waiting(f"{airflow.connection()['login']}-{job_id.replace('-', '')}") is None


def test_the_connection_form_tests_the_connection(airflow: Airflow) -> None:
    forms = airflow.call("GET", "connections/hook_meta", api="ui")
    (form,) = [form for form in forms if form["connection_type"] == "gpufleet"]
    assert set(form["extra_fields"]) == {"blobs", "tls", "pool", "namespace"}
    good = {**airflow.connection(), "connection_id": "tested"}
    good["extra"] = json.dumps(good["extra"])
    result = airflow.call("POST", "connections/test", good)
    assert result["status"] and result["message"].startswith("connected to amqp://")
    assert good["password"] not in result["message"]
    idle = airflow.call("POST", "connections/test", {**good, "extra": json.dumps({"pool": "elsewhere"})})
    assert idle["status"] and "no worker serves pool elsewhere" in idle["message"]
    wrong = airflow.call("POST", "connections/test", {**good, "password": "canary"})
    assert not wrong["status"] and wrong["message"] and "canary" not in wrong["message"]
    empty = airflow.call("POST", "connections/test", {**good, "host": None})
    assert not empty["status"] and "has no host" in empty["message"]
