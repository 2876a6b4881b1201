"""One local fleet for several processes, such as the workers of pytest-xdist.

A process that uses the fleet holds a shared lock on a file, which the kernel releases when the process ends in any way.
A process that leaves and gets the exclusive lock was the last, and stops the fleet. A second lock is held while the
fleet is started or stopped.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpufleet.testing._local import LocalFleet, new_folder

__all__ = ["shared_fleet"]


@contextmanager
def shared_fleet(meeting: Path, **options: Any) -> Iterator[LocalFleet]:
    """The fleet of all processes that share the folder `meeting`. The first one starts it, the last one stops it."""
    place = meeting / "gpufleet.folder"
    with (meeting / "gpufleet.users").open("a") as users:
        with _locked(meeting):
            fleet = _started(place, options)
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            with fleet.as_default():
                yield fleet
        finally:
            with _locked(meeting):
                if _is_last(users):
                    _stop(fleet, place)


def _started(place: Path, options: dict[str, Any]) -> LocalFleet:
    if place.exists():
        return LocalFleet(Path(place.read_text()), **options)
    fleet = LocalFleet(new_folder(), **options)
    try:
        fleet.start()
    except BaseException:
        _stop(fleet, place)
        raise
    place.write_text(str(fleet.folder))
    return fleet


def _stop(fleet: LocalFleet, place: Path) -> None:
    try:
        fleet.stop()
    finally:
        place.unlink(missing_ok=True)
        shutil.rmtree(fleet.folder)


def _is_last(users: Any) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _locked(meeting: Path) -> Iterator[None]:
    with (meeting / "gpufleet.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
