"""What the ledger says of the jobs of a DAG's run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

from deployment import until


def jobs_of(run: str) -> list[dict[str, Any]]:
    """The jobs of a run in the ledger."""
    command = shutil.which("gpufleet", path=os.environ.get("GPUFLEET_BIN_DIR"))
    arguments = [str(command), "history", "--label", f"run={run}", "-o", "json"]
    found: list[dict[str, Any]] = json.loads(subprocess.run(arguments, check=True, stdout=subprocess.PIPE).stdout)
    return found


def ended_jobs_of(run: str) -> list[dict[str, Any]]:
    """The same, once all of them have ended."""

    def look() -> list[dict[str, Any]] | None:
        jobs = jobs_of(run)
        return jobs if jobs and all(job["state"] not in ("queued", "running") for job in jobs) else None

    return until("all jobs have ended in the ledger", look)


def outcomes(run: str) -> list[str]:
    return sorted(job["state"] for job in ended_jobs_of(run))
