"""One local fleet for several processes, such as the workers of pytest-xdist.

A process that uses the fleet holds shared locks on two files, which the kernel releases when the process ends in any
way. A process that leaves and gets the exclusive lock on the first file was the last one, and stops the fleet. A guard
waits for the second file, and stops the fleet if the last process was killed. A third lock is held while the fleet is
started or stopped.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from gpufleet.testing._local import LocalFleet

__all__ = ["guard", "local_fleet", "shared_fleet"]

_PLACE = "gpufleet.folder"
"""Has the folder of the fleet, while it runs."""
_USERS = "gpufleet.users"
_GUARDED = "gpufleet.guarded"
"""Another file than that of the users, because a lock that becomes exclusive is lost to one that waits."""
_LOCK = "gpufleet.lock"


@contextmanager
def local_fleet(*, workers: int = 1, pools: Sequence[str] = (), faults: Sequence[str] = ()) -> Iterator[LocalFleet]:
    """Starts a private fleet in a temporary folder and stops it at the end, also if the program is killed.

    Within the block, it is the fleet of `Fleet()` and of the command `gpufleet`, also in child processes.
    """
    folder = _new_folder()
    # The guard deletes both together.
    meeting = folder / "meeting"
    meeting.mkdir()
    with _joined(meeting, lambda: folder, {"workers": workers, "pools": pools, "faults": faults}) as fleet:
        yield fleet


@contextmanager
def shared_fleet(meeting: Path, **options: Any) -> Iterator[LocalFleet]:
    """The fleet of all processes that share the folder `meeting`. The first one starts it, the last one stops it."""
    with _joined(meeting, _new_folder, options) as fleet:
        yield fleet


@contextmanager
def _joined(meeting: Path, new_folder: Callable[[], Path], options: dict[str, Any]) -> Iterator[LocalFleet]:
    with _opened(meeting, "a") as (guarded, users, lock):
        with _locked(lock):
            fleet = _started(meeting, new_folder, options)
            fcntl.flock(users, fcntl.LOCK_SH)
            fcntl.flock(guarded, fcntl.LOCK_SH)
        try:
            with fleet.as_default():
                yield fleet
        finally:
            _leave(meeting, users, lock)


def guard(meeting: Path) -> None:
    """Stops the fleet when no process uses it any more.

    It creates no file, because the last process may be deleting the folder.
    """
    with _opened(meeting, "r+") as (guarded, users, lock):
        while (meeting / _PLACE).exists():
            fcntl.flock(guarded, fcntl.LOCK_EX)
            # A process that begins to use the fleet holds the third lock while it waits for this one.
            fcntl.flock(guarded, fcntl.LOCK_UN)
            _leave(meeting, users, lock)


@contextmanager
def _opened(meeting: Path, mode: str) -> Iterator[tuple[IO[str], ...]]:
    with (
        (meeting / _GUARDED).open(mode) as guarded,
        (meeting / _USERS).open(mode) as users,
        (meeting / _LOCK).open(mode) as lock,
    ):
        yield guarded, users, lock


def _new_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="gpufleet-test-"))
    # If root starts Postgres, it runs as another user, who must be able to enter.
    folder.chmod(0o711)
    return folder


def _started(meeting: Path, new_folder: Callable[[], Path], options: dict[str, Any]) -> LocalFleet:
    place = meeting / _PLACE
    if place.exists():
        return LocalFleet(Path(place.read_text()), **options)
    folder = new_folder()
    try:
        fleet = LocalFleet(folder, **options)
    except BaseException:
        shutil.rmtree(folder)
        raise
    place.write_text(str(folder))
    _start_guard(meeting)
    try:
        fleet.start()
    except BaseException:
        _stop(meeting)
        raise
    return fleet


def _start_guard(meeting: Path) -> None:
    """A signal of the terminal must not reach the guard, and it must not keep the output of this program open."""
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    command = [sys.executable, "-m", __name__, str(meeting)]
    os.posix_spawn(sys.executable, command, os.environ, file_actions=null, setsid=True)


def _leave(meeting: Path, users: IO[str], lock: IO[str]) -> None:
    with _locked(lock):
        if _is_last(users) and (meeting / _PLACE).exists():
            _stop(meeting)
        fcntl.flock(users, fcntl.LOCK_UN)


def _is_last(users: IO[str]) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _stop(meeting: Path) -> None:
    place = meeting / _PLACE
    folder = Path(place.read_text())
    try:
        LocalFleet(folder).stop()
    finally:
        place.unlink()
        shutil.rmtree(folder)


@contextmanager
def _locked(lock: IO[str]) -> Iterator[None]:
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)


if __name__ == "__main__":
    # The last process may have deleted the folder.
    with contextlib.suppress(FileNotFoundError):
        guard(Path(sys.argv[1]))
