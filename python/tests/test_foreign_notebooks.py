"""Notebooks of other authors, from papermill's wheel, run whole with our engine and our cells between theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
from ledger import poll, states
from papermill.engines import papermill_engines
from weaving import execute, launched, shown, uses, woven

from gpufleet.notebook.papermill import GpufleetEngine

NOTEBOOKS = Path(papermill.__file__).parent / "tests/notebooks"
WHOLE = [
    "gcs/gcs_in/gcs-simple_notebook",
    "nb_version_4.4",
    "no_parameters",
    "report_mode_test",
    "result_no_exec",
    "s3/s3_in/s3-simple_notebook",
    "simple_execute",
    "test_notebooknode_io",
]
STOPPING = ["broken2", "line_magic_error", "sysexit1"]
LEAVING = ["sysexit0", "systemexit"]
"""These end with success before their last cell."""
ENDLESS = "import gpufleet\nendless_of_ours = gpufleet.Fleet().kernel('monte_carlo_pi').submit(10**15)"
END_SECONDS = 20.0

pytestmark = pytest.mark.filterwarnings("ignore::nbformat.warnings.MissingIDFieldWarning")


@pytest.fixture(autouse=True)
def engine(environment: None) -> None:
    # An installed package has an entry point.
    papermill_engines.register("gpufleet", GpufleetEngine)


def read(name: str) -> Any:
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=nbformat.NO_CONVERT)


@pytest.mark.parametrize("name", WHOLE)
def test_a_notebook_of_others_shows_what_it_shows_without_our_cells(name: str, tmp_path: Path) -> None:
    run = tmp_path.name
    document = read(name)
    parameters = {"msg": "given", "var": 2, "a": 5}
    plain = execute(document, tmp_path, None, parameters=parameters)
    done = execute(woven(document), tmp_path, "gpufleet", run=run, parameters=parameters)
    assert shown(done) == shown(plain)
    ours = uses(done)
    for _, cell in ours:
        summary = cell.metadata["gpufleet"]
        assert (summary["jobs"], summary["succeeded"], summary["emulated"]) == (1, 1, True)
    found = poll(lambda: launched(run), lambda found: len(found) == len(ours), END_SECONDS)
    assert {job["labels"]["cell"] for job in found} == {str(index) for index, _ in ours}


@pytest.mark.parametrize("name", STOPPING)
def test_a_notebook_of_others_that_stops_cancels_its_jobs(name: str, tmp_path: Path) -> None:
    run = tmp_path.name
    document = read(name)
    with pytest.raises(papermill.PapermillExecutionError) as plain:
        execute(document, tmp_path, None)
    with pytest.raises(papermill.PapermillExecutionError) as stopped:
        execute(woven(document, ENDLESS), tmp_path, "gpufleet", run=run)
    assert (stopped.value.ename, stopped.value.source) == (plain.value.ename, plain.value.source)
    ended = poll(lambda: states(run), lambda found: found["cancelled"] == 1 and not found["running"], END_SECONDS)
    assert not ended["failed"]


@pytest.mark.parametrize("name", LEAVING)
def test_a_notebook_of_others_that_leaves_early_leaves_no_job(name: str, tmp_path: Path) -> None:
    document = read(name)
    plain = execute(document, tmp_path, None)
    done = execute(woven(document, ENDLESS), tmp_path, "gpufleet", run=tmp_path.name)
    assert shown(done) == shown(plain) and not done.cells[-1].outputs
    poll(lambda: states(tmp_path.name), lambda found: found["cancelled"] == 1 and not found["running"], END_SECONDS)
