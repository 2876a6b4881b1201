"""Fixtures of pytest that run tests on a private fleet with the emulated device.

pytest imports this module at every start, so it is not part of the package `gpufleet`, whose import brings NumPy and
the client. The fixtures import that package.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gpufleet import Fleet
    from gpufleet.testing import LocalFleet


@pytest.fixture(scope="session")
def gpufleet_options() -> dict[str, Any]:
    """The arguments of `gpufleet.testing.local_fleet` for `gpufleet_local`. Override this fixture to change them."""
    return {}


@pytest.fixture(scope="session")
def gpufleet_local(
    gpufleet_options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalFleet | None]:
    """A private fleet for the session, which `gpufleet.Fleet()` uses. None if GPUFLEET_AMQP_URL names a fleet."""
    if os.environ.get("GPUFLEET_AMQP_URL"):
        yield None
        return
    from gpufleet.testing._shared import shared_fleet  # noqa: PLC0415

    with shared_fleet(_meeting(tmp_path_factory), **gpufleet_options) as local:
        yield local


@pytest.fixture
def fleet(gpufleet_local: LocalFleet | None) -> Iterator[Fleet]:
    """A client of the test's own. Jobs that are open at the end of the test are cancelled."""
    from gpufleet import Fleet  # noqa: PLC0415

    fleet = Fleet()
    try:
        yield fleet
        fleet._cancel_open()
    finally:
        fleet.close()


@pytest.fixture
def gpufleet_faults() -> Iterator[Callable[..., Fleet]]:
    """Starts a fleet whose emulated device fails as the rules say: `gpufleet_faults("launch:2=illegal-address")`.

    Until the end of the test, it is also the fleet of `gpufleet.Fleet()`. Keyword arguments are those of
    `gpufleet.testing.local_fleet`.
    """
    from gpufleet import Fleet  # noqa: PLC0415
    from gpufleet.testing import local_fleet  # noqa: PLC0415

    with ExitStack() as stack:

        def start(*faults: str, **options: Any) -> Fleet:
            stack.enter_context(local_fleet(faults=faults, **options))
            fleet = Fleet()
            stack.callback(fleet.close)
            return fleet

        yield start


def _meeting(factory: pytest.TempPathFactory) -> Path:
    """A folder of this run, which the workers of pytest-xdist share."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
