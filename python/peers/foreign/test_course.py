"""The notebooks of nbgrader's example course, as its students handed them in, with cells of ours between theirs."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
from ledger import poll
from papermill.engines import papermill_engines
from weaving import execute, launched, shown, uses, woven

from gpufleet.notebook.papermill import GpufleetEngine

COURSE = "nbgrader/docs/source/user_guide"
TESTS = "nbgrader/tests"
WHOLE = [
    f"{COURSE}/source/ps1/problem1",
    f"{COURSE}/source/ps1/problem2",
    f"{COURSE}/submitted/hacker/ps1/problem1",
    f"{COURSE}/submitted/hacker/ps1/problem2",
    f"{TESTS}/apps/files/test",
    f"{TESTS}/apps/files/side-effects",
    f"{TESTS}/apps/files/submitted-changed",
    f"{TESTS}/preprocessors/files/long-output",
]
STOPPING = [
    f"{COURSE}/submitted/bitdiddle/ps1/problem1",
    f"{TESTS}/apps/files/submitted-unchanged",
    f"{TESTS}/preprocessors/files/infinite-recursion",
]
END_SECONDS = 20.0

pytestmark = pytest.mark.filterwarnings("ignore::nbformat.warnings.MissingIDFieldWarning")


@pytest.fixture(autouse=True)
def engine() -> None:
    papermill_engines.register("gpufleet", GpufleetEngine)


def read(name: str) -> Any:
    path = importlib.metadata.distribution("nbgrader").locate_file(f"{name}.ipynb")
    return nbformat.read(str(path), as_version=nbformat.NO_CONVERT)


@pytest.mark.parametrize("name", WHOLE)
def test_a_notebook_of_the_course_shows_what_it_shows_without_our_cells(name: str, tmp_path: Path) -> None:
    document = read(name)
    plain = execute(document, tmp_path, None)
    done = execute(woven(document), tmp_path, "gpufleet", run=tmp_path.name)
    assert shown(done) == shown(plain)
    ours = uses(done)
    assert all(cell.metadata["gpufleet"]["succeeded"] == 1 for _, cell in ours)
    poll(lambda: launched(tmp_path.name), lambda found: len(found) == len(ours), END_SECONDS)


@pytest.mark.parametrize("name", STOPPING)
def test_a_notebook_of_the_course_stops_where_it_stops_without_our_cells(name: str, tmp_path: Path) -> None:
    document = read(name)
    with pytest.raises(papermill.PapermillExecutionError) as plain:
        execute(document, tmp_path, None)
    with pytest.raises(papermill.PapermillExecutionError) as stopped:
        execute(woven(document), tmp_path, "gpufleet", run=tmp_path.name)
    assert (stopped.value.ename, stopped.value.source) == (plain.value.ename, plain.value.source)
