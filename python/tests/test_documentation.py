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


MODULES = [gf.__name__, *(each.name for each in pkgutil.walk_packages(gf.__path__, "gpufleet."))]


@pytest.mark.parametrize("module", [module for module in MODULES if not module.startswith(IN_PEERS)])
def test_the_examples_of_the_docstrings_run(module: str, environment: None) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0
