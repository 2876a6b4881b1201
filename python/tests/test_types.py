"""The types of the package, as a type checker of its users sees them."""

from __future__ import annotations

import json
import subprocess
import sys

INCOMPLETE = ("gpufleet.airflow.", "gpufleet.dagster.", "gpufleet.notebook.papermill.")
"""Their base classes are in packages that have no types, or that other commands install."""


def test_everything_public_has_a_complete_type() -> None:
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    command += ["--ignoreexternal", "--verifytypes", "gpufleet"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    symbols = json.loads(ran.stdout)["typeCompleteness"]["symbols"]
    complete = {symbol["name"]: symbol["isTypeKnown"] and not symbol["isTypeAmbiguous"] for symbol in symbols}
    assert complete["gpufleet.Fleet"]
    assert not [name for name, is_complete in complete.items() if not is_complete and not name.startswith(INCOMPLETE)]
