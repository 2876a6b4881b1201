"""Our operator in DAGs of other authors, with the real scheduler and triggerer."""

from __future__ import annotations

import pytest
from deployment import Airflow, until
from foreign_dags import CONDITIONS, MAPPING, SETUP, TUTORIAL
from outcomes import outcomes

import gpufleet as gf


def test_a_kernel_takes_the_value_of_the_tutorial_before_it_is_loaded(airflow: Airflow, fleet: gf.Fleet) -> None:
    run = airflow.trigger(TUTORIAL)
    airflow.until_state(TUTORIAL, run, "load", "success")
    total = airflow.xcom(TUTORIAL, run, "transform", "total_order_value")
    result = gf.RemoteArray.from_dict(airflow.xcom(TUTORIAL, run, "of_ours", "y")).get(fleet)
    assert result.tolist() == pytest.approx([total + 0.5, 2 * total + 0.5], rel=1e-6)
    assert airflow.task(TUTORIAL, run, "of_ours")["end_date"] <= airflow.task(TUTORIAL, run, "load")["start_date"]
    assert outcomes(run) == ["succeeded"]


def test_a_kernel_is_mapped_over_results_of_mapped_tasks(airflow: Airflow) -> None:
    run = airflow.trigger(MAPPING)

    def states() -> list[str]:
        found = airflow.call("GET", f"dags/{MAPPING}/dagRuns/{run}/taskInstances")["task_instances"]
        return [each["state"] for each in found if each["task_id"] == "of_ours"]

    def succeeded() -> bool:
        assert "failed" not in states(), airflow.task_log(MAPPING, run, "of_ours")
        return states() == ["success"] * 3

    until("all mapped kernels succeed", succeeded)
    airflow.until_state(MAPPING, run, "sum_it", "success")
    assert outcomes(run) == ["succeeded"] * 3


def test_a_kernel_that_fails_is_torn_down(airflow: Airflow) -> None:
    run = airflow.trigger(SETUP)
    airflow.until_state(SETUP, run, "of_ours", "failed")
    airflow.until_state(SETUP, run, "my_third_task", "success")
    airflow.until_state(SETUP, run, "outer_teardown", "success")
    assert outcomes(run) == ["failed"]


def test_a_kernel_after_a_false_condition_submits_nothing(airflow: Airflow) -> None:
    run = airflow.trigger(CONDITIONS)
    airflow.until_state(CONDITIONS, run, "of_ours_false", "skipped")
    airflow.until_state(CONDITIONS, run, "of_ours_true", "success")
    assert outcomes(run) == ["succeeded"]
