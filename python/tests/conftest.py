"""A private fleet with the emulated device, for all tests of a session."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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


class LocalFleet:
    """A fleet of `gpufleet local` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def up(self) -> None:
        """Starts whatever does not run."""
        self._run("up", "--cuda", "emulated", "--workers", "2")

    def down(self) -> None:
        self._run("down")

    def kill(self, process: str) -> None:
        status = json.loads(self._run("status", "-o", "json"))
        os.kill(next(each["pid"] for each in status["processes"] if each["name"] == process), signal.SIGKILL)

    def _run(self, *arguments: str) -> str:
        run = [command(), "local", *arguments, "--dir", str(self.folder)]
        return subprocess.run(run, check=True, timeout=UP_SECONDS, stdout=subprocess.PIPE, text=True).stdout


@contextmanager
def running_fleet(name: str) -> Iterator[LocalFleet]:
    # Not in pytest's folder: Postgres runs as another user if root starts it, and must be able to enter.
    fleet = LocalFleet(Path(tempfile.gettempdir(), f"gpufleet-python-{name}-{os.getpid()}"))
    try:
        fleet.up()
        yield fleet
    finally:
        fleet.down()
        shutil.rmtree(fleet.folder)


@pytest.fixture(scope="session")
def local_fleet() -> Iterator[LocalFleet]:
    """The fleet of the session. Tests do not break it."""
    with running_fleet("session") as fleet:
        yield fleet


@pytest.fixture
def own_fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalFleet]:
    """A fleet of the test's own, which it may break."""
    with running_fleet("own") as fleet:
        make_default(fleet, monkeypatch)
        yield fleet


def make_default(fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a fleet the default one, also for child processes."""
    for name in [name for name in os.environ if name.startswith("GPUFLEET_") and name != "GPUFLEET_BIN_DIR"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GPUFLEET_LOCAL_DIR", str(fleet.folder))


@pytest.fixture
def environment(local_fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the fleet of the session the default one."""
    make_default(local_fleet, monkeypatch)


@pytest.fixture
def fleet(environment: None) -> Iterator[gf.Fleet]:
    """A connection of the test's own."""
    with gf.Fleet() as fleet:
        yield fleet
