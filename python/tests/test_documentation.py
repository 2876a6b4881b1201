"""Runs the examples of the documentation page and of the docstrings."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

import gpufleet as gf

PEERS = {"dask", "duckdb", "pandas", "polars", "spark"}
"""Modules for libraries that are not in this environment. `cargo xtask python-pipelines` runs their examples."""
PAGE = Path(__file__).parents[2] / "docs/src/clients/python.md"


def test_the_examples_of_the_page_run(environment: None) -> None:
    text = PAGE.read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert len(blocks) == text.count("```") / 2 > 3, "every block is an example in Python"
    names: dict[str, Any] = {}
    for block in blocks:
        # A traceback has the line of the page.
        line = text.count("\n", 0, block.start(1))
        exec(compile("\n" * line + block[1], str(PAGE), "exec"), names)


@pytest.mark.parametrize(
    "module",
    [gf.__name__, *(f"gpufleet.{each.name}" for each in pkgutil.iter_modules(gf.__path__) if each.name not in PEERS)],
)
def test_the_examples_of_the_docstrings_run(module: str, environment: None) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0
