"""The DAG files that the tests run."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[3]
_TUTORIAL = (_ROOT / "docs/src/tutorials/data-pipeline.md").read_text()


def _python(text: str) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


PAGE = _python((_ROOT / "docs/src/clients/airflow.md").read_text())
"""The examples of the reference page."""
STATIONS = _python(_TUTORIAL)
"""The DAG of the tutorial."""
(CONNECTION,) = re.findall(r"python3 -c '\n(.*?)'\)$", _TUTORIAL, re.MULTILINE | re.DOTALL)
"""The program of the tutorial that prints the Airflow connection."""

# A triggerer that looks once an hour sees the reply only when it starts.
DAGS = r"""
from datetime import timedelta

from airflow.sdk import DAG
from gpufleet.airflow import GpufleetKernelOperator

SAXPY = {"kernel": "saxpy", "arguments": {"a": 2.0, "x": [1, 2, 3], "y": [0, 0, 0]}}
LABELS = {"labels": {"run": "{{ run_id }}"}}

with DAG("patient", schedule=None):
    GpufleetKernelOperator(task_id="saxpy", **SAXPY, options=LABELS, deferrable=True, poll_interval=3600)

with DAG("waiting", schedule=None):
    GpufleetKernelOperator(task_id="saxpy", **SAXPY, options=LABELS, deferrable=True)

with DAG("limited", schedule=None):
    GpufleetKernelOperator(
        task_id="saxpy", **SAXPY, options=LABELS, deferrable=True, execution_timeout=timedelta(seconds=5)
    )

with DAG("blocking", schedule=None):
    GpufleetKernelOperator(task_id="saxpy", **SAXPY, options=LABELS)

with DAG("wrong", schedule=None):
    GpufleetKernelOperator(
        task_id="source",
        kernel="wrong",
        source='extern "C" __global__ void wrong(float *y) { y[0] = undeclared; }',
        grid=1,
        block=1,
        arguments=[[0.0]],
        options=LABELS,
        deferrable=True,
        retries=3,
        retry_delay=timedelta(0),
    )

with DAG("late", schedule=None):
    GpufleetKernelOperator(
        task_id="samples",
        kernel="monte_carlo_pi",
        arguments={"samples": 10**15},
        options={**LABELS, "time_limit": "200ms"},
        deferrable=True,
        retries=1,
        retry_delay=timedelta(0),
    )

PACED = '''
extern "C" __global__ void paced(unsigned long long *progress, float *y, unsigned steps) {
    for (unsigned step = 1; step <= steps; ++step) {
        for (unsigned pause = 0; pause < 1000; ++pause) __nanosleep(1000000);
        atomicAdd(progress, 1ull);
    }
    y[0] = steps;
}
'''

with DAG("long", schedule=None):
    for is_deferred in (False, True):
        GpufleetKernelOperator(
            task_id="deferred" if is_deferred else "blocking",
            kernel="paced",
            source=PACED,
            grid=1,
            block=1,
            arguments=[{"progress": 40}, [0.0], 40],
            options=LABELS,
            deferrable=is_deferred,
        )

with DAG("mapped", schedule=None):
    GpufleetKernelOperator.partial(task_id="saxpy", kernel="saxpy", options=LABELS, deferrable=True).expand(
        arguments=[{"a": a, "x": [1.0], "y": [0.0]} for a in (1.0, 2.0, 3.0)]
    )
"""
