"""What the ledger of the local fleet says, by the command `gpufleet`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.05


def jobs(run: str) -> list[dict[str, Any]]:
    """The jobs with the label `run`."""
    command = shutil.which("gpufleet", path=os.environ.get("GPUFLEET_BIN_DIR"))
    assert command
    listed = subprocess.run(
        [command, "history", "--label", f"run={run}", "-o", "json"], check=True, capture_output=True, text=True
    )
    found: list[dict[str, Any]] = json.loads(listed.stdout)
    return found


def states(run: str) -> Counter[str]:
    return Counter(job["state"] for job in jobs(run))


def poll(look: Callable[[], T], is_so: Callable[[T], bool], seconds: float) -> T:
    """Looks until it is so."""
    deadline = time.monotonic() + seconds
    while not is_so(found := look()):
        assert time.monotonic() < deadline, f"after {seconds} s it is still {found}"
        time.sleep(POLL_SECONDS)
    return found
