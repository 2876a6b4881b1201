"""A fleet of `gpufleet local` in a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpufleet._errors import GpufleetError
from gpufleet._settings import AFFINITY, AMQP_URL, BLOBS, LOCAL_DIR, NO_USER_ID, POOL

__all__ = ["LocalFleet", "LocalFleetError", "local_fleet", "temporary_folder"]

BIN_DIR = "GPUFLEET_BIN_DIR"
FAULTS = "GPUFLEET_EMULATOR_FAULTS"
DATABASE_URL = "GPUFLEET_DATABASE_URL"
COMMAND_SECONDS = 180
"""`gpufleet local` gives up earlier by itself."""


class LocalFleetError(GpufleetError):
    """A local fleet could not be started or stopped."""


class LocalFleet:
    """A broker, a database and workers with the emulated device, in a folder.

    Each of the `faults` is a rule of ``GPUFLEET_EMULATOR_FAULTS``, such as ``"launch:2=illegal-address"``.
    """

    def __init__(
        self, folder: Path, *, workers: int = 1, pools: Sequence[str] = (), faults: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self._command = _command()
        self._options = ["--cuda", "emulated", "--workers", str(workers)]
        for pool in pools:
            self._options += ["--pool", pool]
        self._faults = ",".join(faults)

    def start(self) -> None:
        """Starts the processes that do not run, also those that were killed."""
        self._run("up", *self._options)

    def stop(self) -> None:
        """Stops all processes. Data and logs stay in the folder."""
        self._run("down")

    def kill(self, process: str) -> None:
        """Kills a process by its name in `gpufleet local status`, such as ``broker``."""
        processes = json.loads(self._run("status", "-o", "json"))["processes"]
        pids = {each["name"]: each["pid"] for each in processes}
        if process not in pids:
            raise LocalFleetError(f"the local fleet has no process {process!r}; its processes are {', '.join(pids)}")
        os.kill(pids[process], signal.SIGKILL)

    @contextmanager
    def as_default(self) -> Iterator[None]:
        """Makes this the fleet of `Fleet()` and of the command `gpufleet`, also in child processes."""
        elsewhere = (AMQP_URL, BLOBS, POOL, NO_USER_ID, AFFINITY, DATABASE_URL)
        with _environment({LOCAL_DIR: str(self.folder), **dict.fromkeys(elsewhere)}):
            yield

    def __repr__(self) -> str:
        return f"<gpufleet.testing.LocalFleet in {self.folder}>"

    def _run(self, *arguments: str) -> str:
        run = [self._command, "local", *arguments, "--dir", str(self.folder)]
        environment = {**os.environ, FAULTS: self._faults} if self._faults else None
        done = subprocess.run(
            run, check=False, timeout=COMMAND_SECONDS, capture_output=True, text=True, env=environment
        )
        if done.returncode:
            raise LocalFleetError(f"`gpufleet local {arguments[0]}` failed{self._hint()}: {_error_of(done.stderr)}")
        return done.stdout

    def _hint(self) -> str:
        """A worker does not start with a wrong rule."""
        return f" with the faults {self._faults!r}, which may be wrong" if self._faults else ""


@contextmanager
def local_fleet(*, workers: int = 1, pools: Sequence[str] = (), faults: Sequence[str] = ()) -> Iterator[LocalFleet]:
    """Starts a private fleet in a temporary folder and stops it at the end.

    Within the block, it is the fleet of `Fleet()` and of the command `gpufleet`, also in child processes.
    """
    with temporary_folder() as folder:
        fleet = LocalFleet(folder, workers=workers, pools=pools, faults=faults)
        try:
            fleet.start()
            with fleet.as_default():
                yield fleet
        finally:
            fleet.stop()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is deleted at the end."""
    folder = new_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def new_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="gpufleet-test-"))
    # If root starts Postgres, it runs as another user, who must be able to enter.
    folder.chmod(0o711)
    return folder


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Changes environment variables until the end of the block. None unsets one."""
    before = {name: os.environ.get(name) for name in changes}
    try:
        _set(changes)
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _error_of(text: str) -> str:
    """What a command printed, without the progress before its error."""
    return text[max(text.find("error: "), 0) :].strip()


def _command() -> str:
    folder = os.environ.get(BIN_DIR) or None
    found = shutil.which("gpufleet", path=folder)
    if found is None:
        where = f"in {folder}, the folder of {BIN_DIR}" if folder else "on PATH"
        raise LocalFleetError(
            f"the command gpufleet is not {where}; build it in gpufleet's repository with `cargo build --workspace`,"
            f" and set {BIN_DIR} to the folder target/debug there. To use a fleet that runs, set {AMQP_URL}"
        )
    return found
