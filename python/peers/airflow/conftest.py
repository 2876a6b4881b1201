"""A fleet and an Airflow for all tests of a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from deployment import Airflow, running_airflow
from scenarios import DAGS, PAGE

from gpufleet.testing import LocalFleet

pytest_plugins = ["gpufleet_pytest"]


@pytest.fixture(scope="session")
def airflow(gpufleet_local: LocalFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """Airflow with the DAGs of the documentation and of the tests. Its logs stay in pytest's folder."""
    files = {"page.py": PAGE, "scenarios.py": DAGS}
    with running_airflow(tmp_path_factory.mktemp("airflow"), gpufleet_local, files) as airflow:
        yield airflow
