"""A private fleet with the emulated device, for all tests of a session."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpufleet as gf

UP_SECONDS = 120


def command() -> str:
    """The command `gpufleet`, from the folder in which cargo built it."""
    folder = os.environ.get("GPUFLEET_BIN_DIR")
    found = shutil.which("gpufleet", path=folder)
    assert found, "the command gpufleet is needed: cargo xtask python builds it and sets GPUFLEET_BIN_DIR"
    return found


@pytest.fixture(scope="session")
def local_fleet() -> Iterator[Path]:
    """The folder of a running local fleet."""
    # Postgres runs as another user if root starts it, and must be able to enter the folder.
    folder = Path(tempfile.gettempdir(), f"gpufleet-python-{os.getpid()}")
    try:
        up = [command(), "local", "up", "--dir", str(folder), "--cuda", "emulated", "--workers", "2"]
        subprocess.run(up, check=True, timeout=UP_SECONDS, stdout=sys.stderr)
        yield folder
    finally:
        subprocess.run(
            [command(), "local", "down", "--dir", str(folder)], check=True, timeout=UP_SECONDS, stdout=sys.stderr
        )
        shutil.rmtree(folder)


@pytest.fixture
def environment(local_fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the local fleet the default one, also for child processes."""
    for name in [name for name in os.environ if name.startswith("GPUFLEET_") and name != "GPUFLEET_BIN_DIR"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GPUFLEET_LOCAL_DIR", str(local_fleet))


@pytest.fixture
def fleet(environment: None) -> Iterator[gf.Fleet]:
    """A connection of the test's own."""
    with gf.Fleet() as fleet:
        yield fleet
