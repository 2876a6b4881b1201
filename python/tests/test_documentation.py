"""Runs the examples of the documentation's pages and of the docstrings."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import notebooks
import pytest
from programs import program_worker

import gpufleet as gf
from gpufleet.testing import LocalFleet

IN_PEERS = (
    "gpufleet.airflow.",
    "gpufleet.dagster",
    "gpufleet.dask",
    "gpufleet.duckdb",
    "gpufleet.pandas",
    "gpufleet.polars",
    "gpufleet.spark",
)
"""Modules for programs that are not in this environment. The tests in python/peers run their examples."""
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs/src"
HERE = "the tests of the Python package execute it"
"""The mark of blocks and pages that this file executes."""
ELSEWHERE = {
    "clients/airflow.md": "python/peers/airflow/scenarios.py",
    "clients/arrow.md": "python/peers/pipelines/test_examples.py",
    "clients/dagster.md": "python/peers/dagster/test_dagster.py",
    "clients/notebooks": "python/tests/test_examples.py",
    "clients/python-testing.md": "python/tests/test_testing.py",
    "guides/session-pycuda.md": "xtask/src/emulator_programs.rs",
    "guides/sessions.md": "python/tests/test_session.py",
    "tutorials/data-pipeline.md": "python/peers/airflow/scenarios.py",
}
"""Pages, or folders of pages, that other tests execute, with the files that read them."""
OF_OTHERS = ("Celery is not here", "CuPy needs a GPU", "Numba's kernels need a GPU")
"""The marks of blocks that use other programs than gpufleet."""

PAGE_MARK = re.compile(r"^<!-- page not executed: ([^>]+) -->$", re.MULTILINE)
BLOCK = re.compile(r"^(?:<!-- not executed: ([^>]+) -->\n+)?```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"--remote|submit_program")
PYTHON_FENCE = re.compile(r"^\s*(?:`{3,}|~{3,})\s*i?py", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of Python, or a cell of a notebook."""

    lines_before: int
    text: str
    mark: str | None
    """Why `tests/documentation` does not execute the block. It executes blocks without a mark."""


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    of_page = PAGE_MARK.search(text)
    blocks = []
    in_python = 0
    for found in BLOCK.finditer(text):
        mark, language, code = found.groups()
        in_python += language == "python"
        if language == "python" or code.startswith("%%gpu"):
            blocks.append(Block(text.count("\n", 0, found.start(3)), code, of_page[1] if of_page else mark))
        else:
            assert mark or not of_page or of_page[1] != HERE, (
                f"{page}: mark the block of {language}, which is not executed"
            )
    assert in_python == len(PYTHON_FENCE.findall(text)), f"{page}: write blocks of Python as ```python, not indented"
    return blocks


PAGES = {
    page.relative_to(DOCS).as_posix(): blocks for page in sorted(DOCS.rglob("*.md")) if (blocks := blocks_of(page))
}


def elsewhere(name: str) -> str | None:
    """The page or folder of `ELSEWHERE` that a page belongs to."""
    return next((place for place in ELSEWHERE if PurePosixPath(name).is_relative_to(place)), None)


def executed_here(name: str) -> list[Block]:
    return [] if elsewhere(name) else [block for block in PAGES[name] if block.mark == HERE]


@pytest.fixture(scope="module")
def program_worker_of_pages(
    gpufleet_local: LocalFleet | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """The worker of the pages that run programs. Its pool and environment have the names that they use."""
    with program_worker("train", tmp_path_factory.mktemp("worker")):
        yield


@pytest.mark.parametrize("name", [name for name in PAGES if executed_here(name)])
def test_the_examples_of_a_page_run(
    name: str,
    environment: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = executed_here(name)
    if any(PROGRAM.search(block.text) for block in blocks):
        request.getfixturevalue("program_worker_of_pages")
    if any(block.text.startswith("%") for block in blocks):
        notebooks.run(*(block.text for block in blocks), folder=tmp_path)
        return
    names: dict[str, Any] = {}
    for block in blocks:
        # A traceback has the line of the page.
        exec(compile("\n" * block.lines_before + block.text, str(DOCS / name), "exec"), names)


@pytest.mark.parametrize("name", PAGES)
def test_a_test_executes_every_block_of_a_page_except_those_of_other_programs(name: str) -> None:
    if place := elsewhere(name):
        assert f"docs/src/{place}" in (ROOT / ELSEWHERE[place]).read_text(), "that test does not read this page"
        return
    marks = {block.lines_before: block.mark for block in PAGES[name]}
    wrong = {line: mark for line, mark in marks.items() if mark not in (None, HERE, *OF_OTHERS)}
    assert not wrong, f"no test executes these blocks; if they use gpufleet, mark them `not executed: {HERE}`"


MODULES = [gf.__name__, *(each.name for each in pkgutil.walk_packages(gf.__path__, "gpufleet."))]


@pytest.mark.parametrize("module", [module for module in MODULES if not module.startswith(IN_PEERS)])
def test_the_examples_of_the_docstrings_run(module: str, environment: None) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0
