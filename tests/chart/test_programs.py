"""The programs, started as the chart's pods would start them, on a fleet's own broker and database."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from chart import Object, Values, named

PROGRAMS = Path(os.environ["GPUFLEET_BIN_DIR"])
TOKEN = "token-of-cargo-xtask-test-chart"
POD = "worker-pod"
STARTS_WITHIN = 60.0
VALUES: Values = {"workers": {"default": None, "chart": {"pools": ["chart:sessions=1"], "cuda": "emulated", "gpus": 0}}}


class Pods:
    """Runs containers as processes, each with a folder and with ports of this machine in place of its own."""

    def __init__(self, folder: Path, secrets: dict[tuple[str, str], str]) -> None:
        self._folder = folder
        self._secrets = secrets
        self._ports: dict[int, int] = {}

    def run_to_end(self, kind: str, name: str) -> None:
        pod = named(VALUES, kind, name)["spec"]["template"]["spec"]
        subprocess.run(**self._command(pod), check=True, timeout=STARTS_WITHIN)

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        pod = named(VALUES, "Deployment", name)["spec"]["template"]["spec"]
        process = subprocess.Popen(**self._command(pod))
        try:
            self._wait_until_ready(pod, process)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(STARTS_WITHIN) == 0

    def url(self, port: int) -> str:
        """Of the container that listens on this port."""
        return f"http://127.0.0.1:{self._port(port)}"

    def _command(self, pod: Object) -> dict[str, Any]:
        (only,) = pod["containers"]
        self._mount(pod)
        variables = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
        for variable in only["env"]:
            variables[variable["name"]] = self._here(only, self._value(variable))
        program = only["image"].split(":")[0]
        return {"args": [PROGRAMS / program, *(self._here(only, text) for text in only["args"])], "env": variables}

    def _mount(self, pod: Object) -> None:
        (only,) = pod["containers"]
        volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
        for mount in only.get("volumeMounts", []):
            folder = self._path(only, mount["mountPath"])
            folder.mkdir(parents=True)
            if secret := volumes[mount["name"]].get("secret"):
                (folder / "tokens").write_text(self._secrets[secret["secretName"], "tokens"] + "\n")

    def _value(self, variable: Object) -> str:
        match variable:
            case {"value": value}:
                return value
            case {"valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}:
                return self._secrets[secret, key]
            case {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}:
                return POD
            case {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}:
                return "127.0.0.1"
        raise AssertionError(f"no such kind of variable: {variable}")

    def _here(self, only: Object, text: str) -> str:
        """The text with this test's folders and ports."""
        if mounts := [re.escape(mount["mountPath"]) for mount in only.get("volumeMounts", [])]:
            text = re.sub("|".join(mounts), lambda found: str(self._path(only, found[0])), text)
        text = text.replace("http://fleet-api:9470", self.url(9470))
        text = re.sub(r"0\.0\.0\.0:\d+-\d+", "127.0.0.1:0", text)
        if "0.0.0.0:" in text:
            before, port = text.split("0.0.0.0:")
            text = f"{before}127.0.0.1:{self._port(int(port))}"
        return text

    def _path(self, only: Object, path: str) -> Path:
        return self._folder / only["name"] / path.lstrip("/")

    def _port(self, of_container: int) -> int:
        if of_container not in self._ports:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self._ports[of_container] = free.getsockname()[1]
        return self._ports[of_container]

    def _wait_until_ready(self, pod: Object, process: subprocess.Popen[bytes]) -> None:
        (only,) = pod["containers"]
        deadline = time.monotonic() + STARTS_WITHIN
        while not self._is_ready(only):
            assert process.poll() is None, f"{only['name']} ended with {process.returncode}"
            assert time.monotonic() < deadline, f"{only['name']} is not ready"
            time.sleep(0.05)

    def _is_ready(self, only: Object) -> bool:
        match only["readinessProbe"]:
            case {"exec": {"command": command}}:
                return subprocess.run([self._here(only, text) for text in command], check=False).returncode == 0
            case {"httpGet": {"path": path}}:
                (port,) = only["ports"]
                try:
                    return urllib.request.urlopen(self.url(port["containerPort"]) + path).status == 200
                except OSError:
                    return False
        raise AssertionError("no such kind of probe")


def gpufleet(*arguments: str) -> str:
    ran = subprocess.run([PROGRAMS / "gpufleet", *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return ran.stdout


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the user of Postgres may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def variables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The variables of a fleet of the test's own."""
    monkeypatch.setenv("GPUFLEET_LOCAL_DIR", str(folder / "local"))
    try:
        gpufleet("local", "up", "--cuda", "emulated")
        yield json.loads(gpufleet("local", "env", "--output", "json"))
    finally:
        gpufleet("local", "down")


def test_the_pods_make_a_fleet_that_runs_a_job(folder: Path, variables: dict[str, str]) -> None:
    broker, database = variables["GPUFLEET_AMQP_URL"], variables["GPUFLEET_DATABASE_URL"]
    secrets = {("gpufleet-broker", role): broker for role in ("worker", "recorder", "console")}
    secrets |= {("gpufleet-database", role): database for role in ("owner", "recorder", "reader")}
    secrets |= {("gpufleet-api", "tokens"): TOKEN, ("gpufleet-api", "console"): TOKEN}
    secrets |= {("gpufleet-console", "tokens"): TOKEN}
    pods = Pods(folder / "pods", secrets)
    pods.run_to_end("Job", "fleet-migrate")
    with ExitStack() as stack:
        for name in ("fleet-recorder", "fleet-api", "fleet-worker-chart", "fleet-console"):
            stack.enter_context(pods.running(name))
        job = ("saxpy", "--pool", "chart", "--arg", "a=2", "--fill", "x=f32[4]:1", "--fill", "y=f32[4]:1")
        done = json.loads(gpufleet("submit", *job, "--amqp-url", broker, "--output", "json"))
        assert done["ran_on"]["worker"] == POD
        request = urllib.request.Request(pods.url(9470) + "/v1/workers", headers={"Authorization": f"Bearer {TOKEN}"})
        (worker,) = [w for w in json.load(urllib.request.urlopen(request))["workers"] if w["worker"] == POD]
        assert worker["sessions"]["hosts"] == ["127.0.0.1"]
        assert urllib.request.urlopen(pods.url(9480)).status == 200
        for metrics in (9464, 9471):
            assert b"gpufleet_" in urllib.request.urlopen(pods.url(metrics) + "/metrics").read()
