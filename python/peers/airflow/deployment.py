"""Airflow with its real processes on this machine: API server, DAG processor, scheduler and triggerer."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import psutil
import psycopg2
from sqlalchemy.engine import make_url

from gpufleet.testing import LocalFleet

T = TypeVar("T")

WAIT_SECONDS = 180.0
"""The time for anything to happen. The processes of Airflow take long to start on a busy machine."""
STOP_SECONDS = 30.0
DATABASE = "airflow"


def until(what: str, look: Callable[[], T | None], seconds: float = WAIT_SECONDS) -> T:
    """Polls until `look` returns something true."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.1)
    return found


class Airflow:
    """An installation in a folder, with its database in the Postgres of a local fleet."""

    def __init__(self, folder: Path, fleet: LocalFleet) -> None:
        self.folder = folder
        self.dags = folder / "dags"
        self.dags.mkdir()
        self.endpoints: dict[str, Any] = json.loads((fleet.folder / "endpoints.json").read_text())
        self.port = _free_port()
        self._environment = {**os.environ, **self._settings()}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._token = ""

    def start(self) -> None:
        """Creates the database and starts all processes."""
        _create_database(self.endpoints["database_url"])
        self.run("db", "migrate")
        for name in ("api-server", "dag-processor", "scheduler", "triggerer"):
            self.start_process(name)
        until("the API server", self._log_in)

    def start_process(self, name: str) -> None:
        command = [sys.executable, "-m", "airflow", name]
        with (self.folder / f"{name}.log").open("ab") as log:
            # A session of its own, because a component has children.
            self._processes[name] = subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def kill_process(self, name: str, by: signal.Signals = signal.SIGKILL) -> None:
        """Kills a component. SIGKILL takes its children too; another signal is for the component alone."""
        process = self._processes.pop(name)
        if by == signal.SIGKILL:
            os.killpg(process.pid, by)
        else:
            process.send_signal(by)
        process.wait(STOP_SECONDS)

    def stop(self) -> None:
        """Kills everything: nothing here is used again."""
        for name in list(self._processes):
            self.kill_process(name)

    def run(self, *arguments: str) -> str:
        """Runs a command of Airflow."""
        command = [sys.executable, "-m", "airflow", *arguments]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def broker_connections(self, name: str) -> int:
        """The connections of a component and its children to the broker."""
        component = psutil.Process(self._processes[name].pid)
        port = make_url(self.endpoints["amqp_url"]).port
        sockets = [each for process in (component, *component.children(True)) for each in process.net_connections()]
        return sum(each.raddr.port == port for each in sockets if each.raddr)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, api: str = "api/v2") -> Any:
        """Calls the REST API."""
        return self._request(method, f"/{api}/{path}", body)

    def trigger(self, dag: str) -> str:
        """Starts a run of a DAG, once Airflow has read its file, and returns the run's id."""
        until(f"DAG {dag}", lambda: self._knows(dag))
        self.call("PATCH", f"dags/{dag}", {"is_paused": False})
        run = self.call("POST", f"dags/{dag}/dagRuns", {"logical_date": datetime.now(UTC).isoformat()})
        return str(run["dag_run_id"])

    def task(self, dag: str, run: str, task: str) -> dict[str, Any]:
        """A task instance."""
        found: dict[str, Any] = self.call("GET", f"dags/{dag}/dagRuns/{run}/taskInstances/{task}")
        return found

    def until_state(self, dag: str, run: str, task: str, *states: str) -> dict[str, Any]:
        """Waits until a task has one of these states."""

        def look() -> dict[str, Any] | None:
            found = self.task(dag, run, task)
            if found["state"] in states:
                return found
            assert found["state"] not in ("failed", "upstream_failed"), self.task_log(dag, run, task)
            return None

        return until(f"task {task} of {dag} is {' or '.join(states)}", look)

    def xcom(self, dag: str, run: str, task: str, key: str = "return_value") -> Any:
        """An XCom of a task."""
        path = f"dags/{dag}/dagRuns/{run}/taskInstances/{task}/xcomEntries/{key}?deserialize=true"
        return self.call("GET", path)["value"]

    def xcom_bytes(self, dag: str, run: str, task: str) -> list[int]:
        """The sizes of a task's XComs in the database."""
        with psycopg2.connect(_of_database(self.endpoints["database_url"])) as database, database.cursor() as cursor:
            cursor.execute(
                "SELECT octet_length(value::text) FROM xcom WHERE dag_id = %s AND run_id = %s AND task_id = %s",
                (dag, run, task),
            )
            return [size for (size,) in cursor.fetchall()]

    def task_log(self, dag: str, run: str, task: str) -> str:
        """What the processes of a task have logged, its trigger among them."""
        folder = self.folder / "logs" / f"dag_id={dag}" / f"run_id={run}" / f"task_id={task}"
        return "".join(file.read_text(errors="replace") for file in sorted(folder.rglob("*.log*")))

    def _knows(self, dag: str) -> bool:
        try:
            self.call("GET", f"dags/{dag}")
        except urllib.error.HTTPError as error:
            assert error.code == 404, error.read()
            return False
        return True

    def _log_in(self) -> bool:
        try:
            self._token = self._request("GET", "/auth/token")["access_token"]
        except (OSError, urllib.error.URLError):
            return False
        return True

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)

    def _settings(self) -> dict[str, str]:
        """Airflow's configuration. Short intervals, so that the tests need not wait for the usual ones."""
        database = make_url(_of_database(self.endpoints["database_url"]))
        settings = {
            "CORE": {
                "dags_folder": str(self.dags),
                "executor": "LocalExecutor",
                "execution_api_server_url": f"http://127.0.0.1:{self.port}/execution/",
                "fernet_key": urlsafe_b64encode(secrets.token_bytes(32)).decode(),
                "load_examples": "False",
                "parallelism": "4",
                "simple_auth_manager_all_admins": "True",
                "test_connection": "Enabled",
            },
            "DATABASE": {
                "sql_alchemy_conn": database.set(drivername="postgresql+psycopg2").render_as_string(False),
                "sql_alchemy_conn_async": database.set(drivername="postgresql+asyncpg").render_as_string(False),
            },
            "API": {"host": "127.0.0.1", "port": str(self.port), "workers": "1", "secret_key": secrets.token_hex(16)},
            "API_AUTH": {"jwt_secret": secrets.token_hex(32)},
            "DAG_PROCESSOR": {"refresh_interval": "2", "min_file_process_interval": "2"},
            "LOGGING": {
                "base_log_folder": str(self.folder / "logs"),
                "trigger_log_server_port": str(_free_port()),
                "worker_log_server_port": str(_free_port()),
            },
            "SCHEDULER": {"scheduler_heartbeat_sec": "1", "trigger_timeout_check_interval": "1"},
            "WORKERS": {"min_heartbeat_interval": "2"},
            "TRIGGERER": {"job_heartbeat_sec": "1", "triggerer_health_check_threshold": "4"},
        }
        named = {
            f"AIRFLOW__{section}__{name.upper()}": value
            for section, values in settings.items()
            for name, value in values.items()
        }
        return {
            **named,
            "AIRFLOW_HOME": str(self.folder),
            "AIRFLOW_CONN_GPUFLEET_DEFAULT": json.dumps(self.connection()),
        }

    def connection(self) -> dict[str, Any]:
        """The connection to the fleet, as Airflow keeps it."""
        broker = make_url(self.endpoints["amqp_url"])
        return {
            "conn_type": "gpufleet",
            "host": broker.host,
            "port": broker.port,
            "login": broker.username,
            "password": broker.password,
            "schema": broker.database or "/",
            "extra": {"blobs": self.endpoints["blobs"]},
        }


@contextmanager
def running_airflow(folder: Path, fleet: LocalFleet, dags: Mapping[str, str]) -> Iterator[Airflow]:
    """Starts Airflow with these DAG files, and stops it at the end."""
    airflow = Airflow(folder, fleet)
    for name, text in dags.items():
        (airflow.dags / name).write_text(text)
    try:
        airflow.start()
        yield airflow
    finally:
        airflow.stop()


def _of_database(url: str) -> str:
    return make_url(url).set(database=DATABASE).render_as_string(False)


def _create_database(url: str) -> None:
    database = psycopg2.connect(url)
    try:
        database.autocommit = True
        with database.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {DATABASE}")
    finally:
        database.close()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
