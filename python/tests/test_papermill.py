"""The engine of papermill: labels, times in the metadata of cells, and cancellation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
from ledger import jobs, poll, states
from notebooks import UnixKernelManager, notebook
from papermill.engines import papermill_engines

from gpufleet.notebook.papermill import GpufleetEngine

CELLS = (
    "import numpy as np, gpufleet as gf\nfleet = gf.Fleet()\nsaxpy = fleet.kernel('saxpy')\nx = np.ones(4, np.float32)",
    "for a in range(3): saxpy(float(a), x, x)",
    "1 + 1",
    "saxpy.options(labels={'cell': 'mine'})(1.0, x, x)",
)
ENDLESS = "endless = fleet.kernel('monte_carlo_pi').submit(10**15)"
END_SECONDS = 20.0
OPTIONS: dict[str, Any] = {
    "engine_name": "gpufleet",
    "kernel_name": "python3",
    "progress_bar": False,
    "kernel_manager_class": UnixKernelManager,
}


@pytest.fixture(autouse=True)
def engine(environment: None) -> None:
    # An installed package has an entry point.
    papermill_engines.register("gpufleet", GpufleetEngine)


def execute(folder: Path, run: str, *cells: str) -> Any:
    source = folder / "in.ipynb"
    nbformat.write(notebook(*cells), source)
    return papermill.execute_notebook(source, folder / "out.ipynb", run=run, **OPTIONS)


def test_jobs_have_labels_and_cells_have_their_times(tmp_path: Path) -> None:
    run = tmp_path.name
    done = execute(tmp_path, run, *CELLS)
    assert done.metadata["gpufleet"] == {"notebook": "in.ipynb", "run": run}
    found = poll(lambda: jobs(run), lambda found: len(found) == 4, END_SECONDS)
    assert Counter(job["labels"]["cell"] for job in found) == {"1": 3, "mine": 1}
    assert {job["labels"]["notebook"] for job in found} == {"in.ipynb"}
    none, three, other, one = (cell.metadata.get("gpufleet") for cell in done.cells)
    assert none is None and other is None
    assert (three["jobs"], three["succeeded"], one["jobs"], three["emulated"]) == (3, 3, 1, True)
    assert three["kernel_seconds"] > 0 and three["queue_seconds"] > 0


def test_a_failed_cell_cancels_the_run(tmp_path: Path) -> None:
    run = tmp_path.name
    with pytest.raises(papermill.PapermillExecutionError, match="ZeroDivisionError"):
        execute(tmp_path, run, CELLS[0], ENDLESS, "1 / 0")
    poll(lambda: states(run), lambda found: found == {"cancelled": 1}, END_SECONDS)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_killing_papermill_cancels_the_run(how: signal.Signals, tmp_path: Path) -> None:
    run = f"{tmp_path.name}-{how}"
    nbformat.write(notebook(CELLS[0], ENDLESS, "endless.result()"), tmp_path / "in.ipynb")
    program = f"""
import sys
sys.path.append({str(Path(__file__).parent)!r})
import papermill
from papermill.engines import papermill_engines
from test_papermill import OPTIONS, GpufleetEngine
papermill_engines.register("gpufleet", GpufleetEngine)
papermill.execute_notebook(*{[str(tmp_path / name) for name in ("in.ipynb", "out.ipynb")]}, run={run!r}, **OPTIONS)
"""
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL) as running:
        poll(lambda: states(run), lambda found: found["running"] == 1, END_SECONDS * 3)
        os.kill(running.pid, how)
    poll(lambda: states(run), lambda found: found == {"cancelled": 1}, END_SECONDS)


def test_a_kernel_without_the_package_runs_as_ever(tmp_path: Path) -> None:
    hidden = "import sys\nsys.modules['gpufleet'] = None"
    done = execute(tmp_path, tmp_path.name, hidden, "print(1 + 1)")
    assert done.cells[1].outputs[0].text == "2\n" and "gpufleet" not in done.cells[1].metadata
