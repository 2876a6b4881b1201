"""The examples of the documentation run as programs of their own, and those of the docstrings in this one."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from spark import java

EXAMPLES = sorted(Path(__file__).with_name("examples").glob("*.py"))
PAGE = Path(__file__).parents[3] / "docs/src/clients/arrow.md"
SECONDS = 180


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    if example.stem.startswith("spark"):
        java(monkeypatch)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ran = subprocess.run([sys.executable, "-P", example], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_page_shows_every_example() -> None:
    text = PAGE.read_text()
    assert [example.name for example in EXAMPLES if f"/examples/{example.name}}}}}" not in text] == []


@pytest.mark.parametrize("name", ["arrow", "pandas", "polars", "duckdb", "dask", "spark"])
def test_the_examples_of_the_docstrings_run(name: str, environment: None) -> None:
    assert doctest.testmod(importlib.import_module(f"gpufleet.{name}")).failed == 0
