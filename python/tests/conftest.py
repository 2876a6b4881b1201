"""The fixtures of the package itself, and fleets that a test may break."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from programs import program_worker

from gpufleet.testing import LocalFleet, local_fleet

# An installed package is found by its entry point, which has the same name.
pytest_plugins = ["gpufleet_pytest", "pytester"]


@pytest.fixture(scope="session")
def gpufleet_options() -> dict[str, Any]:
    return {"workers": 2}


@pytest.fixture
def environment(gpufleet_local: LocalFleet | None) -> None:
    """Makes the fleet of the session the default one, also for child processes."""


@pytest.fixture(scope="module")
def programs(gpufleet_local: LocalFleet | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The pool of a worker that runs host programs, for the tests of a file."""
    with program_worker(f"programs-{os.getpid()}", tmp_path_factory.mktemp("worker")) as pool:
        yield pool


@pytest.fixture(scope="module")
def undisturbed() -> Iterator[LocalFleet]:
    """A fleet for the tests of a file, also in child processes. On a shared fleet, a job starts again if another test
    cancels a job beside it.
    """
    with local_fleet() as fleet:
        yield fleet


@pytest.fixture
def own_fleet() -> Iterator[LocalFleet]:
    """A fleet of the test's own, which it may break."""
    with local_fleet(workers=2) as fleet:
        yield fleet
