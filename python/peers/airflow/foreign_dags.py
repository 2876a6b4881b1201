"""DAGs of other authors: examples that Airflow's packages have, with our operator among their tasks.

Their text comes from the installed packages. Ours uses the names that they define.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

_OPERATOR = """
from gpufleet.airflow import GpufleetKernelOperator

OF_OURS = {"kernel": "saxpy", "options": {"labels": {"run": "{{ run_id }}"}}}
"""

TUTORIAL = "tutorial_taskflow_api"
_IN_TUTORIAL = """
from airflow.sdk import XComArg

with theirs:
    of_ours = GpufleetKernelOperator(
        task_id="of_ours",
        arguments={"a": XComArg(theirs.get_task("transform"), "total_order_value"), "x": [1.0, 2.0], "y": [0.5, 0.5]},
        deferrable=True,
        **OF_OURS,
    )
    of_ours >> theirs.get_task("load")
"""

MAPPING = "example_dynamic_task_mapping"
_IN_MAPPING = """
with added_values.operator.dag:
    GpufleetKernelOperator.partial(task_id="of_ours", deferrable=True, **OF_OURS).expand(
        arguments=added_values.map(lambda value: {"a": value, "x": [1.0], "y": [0.0]})
    )
"""

SETUP = "example_setup_teardown_taskflow"
_IN_SETUP = """
with dag:
    fails = GpufleetKernelOperator(
        task_id="of_ours",
        kernel="monte_carlo_pi",
        arguments={"samples": 10**15},
        options={"labels": {"run": "{{ run_id }}"}, "time_limit": "200ms"},
    )
    task_1 >> fails >> task_3
"""

CONDITIONS = "example_short_circuit_decorator"
_IN_CONDITIONS = """
with example_dag:
    for condition in ("true", "false"):
        of_ours = GpufleetKernelOperator(
            task_id=f"of_ours_{condition}", arguments={"a": 1.0, "x": [1.0], "y": [1.0]}, **OF_OURS
        )
        example_dag.get_task(f"condition_is_{condition}") >> of_ours
"""


def files() -> dict[str, str]:
    """The DAG files by name."""
    core, standard = "airflow.example_dags", "airflow.providers.standard.example_dags"
    tutorial = _text(core, TUTORIAL)
    # The example does not keep the DAG that it makes.
    call = f"\n{TUTORIAL}()\n"
    assert tutorial.count(call) == 1
    tutorial = tutorial.replace(call, f"\ntheirs = {TUTORIAL}()\n")
    return {
        "tutorial.py": tutorial + _OPERATOR + _IN_TUTORIAL,
        "mapping.py": _text(core, MAPPING) + _OPERATOR + _IN_MAPPING,
        "setup.py": _text(core, SETUP) + _OPERATOR + _IN_SETUP,
        "conditions.py": _text(standard, CONDITIONS) + _OPERATOR + _IN_CONDITIONS,
    }


def _text(package: str, name: str) -> str:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    return (Path(spec.origin).parent / f"{name}.py").read_text()
