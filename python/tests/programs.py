"""A worker that runs host programs, on the fleet of the tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ledger import poll

READY_SECONDS = 100
END_SECONDS = 60
ENVIRONMENT = "science"
"""The environment of these tests, with their packages."""
PLAIN = "plain"
"""The programs of the system."""


@contextmanager
def program_worker(pool: str, folder: Path) -> Iterator[str]:
    """Starts a worker that runs one program of the pool at a time. It runs until the end of the block."""
    ready = folder / "ready"
    options = ["--cuda", "emulated", "--name", f"programs-{pool}", "--pool", f"{pool}:programs=1"]
    for name, place in ((ENVIRONMENT, sys.prefix), (PLAIN, "/usr")):
        options += ["--environment", f"{name}={place}"]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [_command("gpufleet-worker"), "run", *options, "--ready-file", str(ready)],
            env={**os.environ, **_addresses()},
            stdout=log,
            stderr=log,
        ) as worker,
    ):
        try:
            poll(lambda: ready.exists() or worker.poll() is not None, bool, READY_SECONDS)
            assert worker.poll() is None, (folder / "log").read_text()
            yield pool
        finally:
            worker.terminate()
            worker.wait(END_SECONDS)


def _addresses() -> dict[str, str]:
    """The addresses of the local fleet. A fleet that the environment names needs none."""
    if os.environ.get("GPUFLEET_AMQP_URL"):
        return {}
    shown = subprocess.run(
        [_command("gpufleet"), "local", "env", "-o", "json"], check=True, capture_output=True, text=True
    )
    variables: dict[str, str] = json.loads(shown.stdout)
    return variables


def _command(name: str) -> str:
    found = shutil.which(name, path=os.environ.get("GPUFLEET_BIN_DIR"))
    assert found, name
    return found
