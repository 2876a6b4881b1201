"""A fleet and an Airflow for all tests of a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from deployment import Airflow, running_airflow
from foreign_dags import files as foreign_dags
from scenarios import DAGS, PAGE, STATIONS

from gpufleet.testing import LocalFleet

pytest_plugins = ["gpufleet_pytest"]


@pytest.fixture(scope="session")
def airflow(gpufleet_local: LocalFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """Airflow with DAGs of the documentation, of the tests and of other authors. Its logs stay in pytest's folder."""
    files = {"page.py": PAGE, "stations.py": STATIONS, "scenarios.py": DAGS, **foreign_dags()}
    with running_airflow(tmp_path_factory.mktemp("airflow"), gpufleet_local, files) as airflow:
        yield airflow
