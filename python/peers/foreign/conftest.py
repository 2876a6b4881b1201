"""The fleet of all tests of a session."""

from __future__ import annotations

from typing import Any

import pytest

pytest_plugins = ["gpufleet_pytest"]


@pytest.fixture(scope="session")
def gpufleet_options() -> dict[str, Any]:
    return {"workers": 2}


@pytest.fixture(autouse=True)
def environment(gpufleet_local: object) -> None:
    """Makes the fleet of the session the default one, also for child processes."""
