"""Runs the cell. Before anything else, it checks that this Python is the notebook's."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
BACK = "back"
"""The folder with what goes back to the notebook."""
REPORT = "report.json"


def main() -> int:
    request = json.loads((FOLDER / "request.json").read_text())
    (FOLDER / BACK).mkdir()
    report = _refusal(request["python"]) or _run(request)
    (FOLDER / BACK / REPORT).write_text(json.dumps(report))
    return 1 if "refused" in report or report["error"] else 0


def _refusal(expected: list[int]) -> dict[str, Any] | None:
    """Code and many values can't be read by another version of Python, which would fail in confusing ways."""
    here = list(sys.version_info[:2])
    if here == expected:
        return None
    notebook, worker = (".".join(map(str, version)) for version in (expected, here))
    return {
        "refused": f"the notebook runs Python {notebook}, and the environment on the worker has Python {worker}, which"
        f" can't read its values; choose an environment with Python {notebook}, or a kernel with Python {worker}"
    }


def _run(request: dict[str, Any]) -> dict[str, Any]:
    from .cell import run  # noqa: PLC0415

    return run(FOLDER, FOLDER / BACK, request)


if __name__ == "__main__":
    sys.exit(main())
