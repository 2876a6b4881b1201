"""The fleet of all tests of a session."""

from __future__ import annotations

import pytest

pytest_plugins = ["gpufleet_pytest"]


def pytest_configure(config: pytest.Config) -> None:
    # Dagster uses what it has deprecated itself.
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning:dagster")
    config.addinivalue_line("filterwarnings", "ignore:.*InitResourceContext:DeprecationWarning")


@pytest.fixture(autouse=True)
def _default(gpufleet_local: object) -> None:
    """Makes the fleet of the session the default one."""
