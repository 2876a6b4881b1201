"""The types of the package, as a type checker of its users sees them."""

from __future__ import annotations

import json
import subprocess
import sys

INCOMPLETE = ("gpufleet.airflow.", "gpufleet.dagster.", "gpufleet.notebook.papermill.GpufleetEngine")
"""Their base classes are in packages that have no types, or that other commands install."""


def test_everything_public_has_a_complete_type() -> None:
    command = [sys.executable, "-m", "pyright", "--ignoreexternal", "--verifytypes", "gpufleet", "--outputjson"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    symbols = json.loads(ran.stdout)["typeCompleteness"]["symbols"]
    public = {symbol["name"]: symbol["diagnostics"] for symbol in symbols if symbol["isExported"]}
    assert "gpufleet._fleet.Fleet.kernel" in public
    problems = {name: found for name, found in public.items() if found and not name.startswith(INCOMPLETE)}
    assert not problems
