"""The fleet of all tests of a session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from programs import program_worker

pytest_plugins = ["gpufleet_pytest"]


@pytest.fixture(scope="session")
def gpufleet_options() -> dict[str, Any]:
    return {"workers": 2}


@pytest.fixture(autouse=True)
def environment(gpufleet_local: object) -> None:
    """Makes the fleet of the session the default one, also for child processes."""


@pytest.fixture(scope="session")
def programs(gpufleet_local: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The pool of a worker that runs host programs, in the environment of these tests."""
    with program_worker(f"programs-{os.getpid()}", tmp_path_factory.mktemp("worker")) as pool:
        yield pool
