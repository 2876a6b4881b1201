"""The driver library of sessions: where it is, and how this process loads it as `libcuda`."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["LIBRARY", "NUMBA", "SOCKET", "Changed", "find", "loaded_driver", "start"]

LIBRARY = "GPUFLEET_SESSION_LIBRARY"
SOCKET = "GPUFLEET_SESSION_SOCKET"
"""The driver library reads the path of the session's socket from this variable at the first call of `cuInit`."""
NUMBA = "NUMBA_CUDA_DRIVER"
"""numba-cuda loads the driver of this path. Without it, it searches other folders first."""

_FILE = "libgpufleet_driver.so"
_NAMES = ("libcuda.so", "libcuda.so.1")
_DRIVER = re.compile(r"/\S*/libcuda\.so[.\d]*$", re.MULTILINE)


def find(given: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> str:
    """Returns the path of the library: the given one, or else that of the installation. Raises `FileNotFoundError`."""
    named = os.fspath(given) if given is not None else environment.get(LIBRARY)
    if named:
        if not Path(named).is_file():
            raise FileNotFoundError(
                f"the driver library {named} does not exist; correct the argument library or {LIBRARY}"
            )
        return named
    places = [str(place) for place in _places()]
    for place in places:
        if Path(place).is_file():
            return place
    raise FileNotFoundError(
        f"the driver library was not found: there is no {', no '.join(places)}; install the wheel of gpufleet, or name"
        f" the file with the argument library or {LIBRARY}"
    )


def _places() -> Iterator[Path]:
    """The places of a wheel, of the installation that has the command `gpufleet`, and of a Debian package."""
    yield Path(__file__).with_name("lib") / _FILE
    command = shutil.which("gpufleet")
    if command is not None:
        folder = Path(command).resolve().parent
        yield folder / _FILE
        yield folder.parent / "lib/gpufleet" / _FILE
    yield Path("/usr/lib/gpufleet") / _FILE


def loaded_driver() -> str | None:
    """Returns the path of a driver that this process has loaded."""
    found = _DRIVER.search(Path("/proc/self/maps").read_text(errors="surrogateescape"))
    return None if found is None else found[0]


class Changed:
    """Environment variables with other values for a while."""

    def __init__(self) -> None:
        self._before: dict[str, str | None] = {}

    def set(self, name: str, value: str) -> None:
        self._before.setdefault(name, os.environ.get(name))
        os.environ[name] = value

    def undo(self) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before.clear()


def start(path: str, socket: str) -> None:
    """Loads the library and connects it to the session. Raises `RuntimeError`.

    Later searches of the process for a driver find the library under both of its usual names. `path` is a link with one
    of them, in a folder that has both. The library answers to ``libcuda.so``, its SONAME. To answer to
    ``libcuda.so.1``, it must search in that folder itself, because the dynamic linker has read ``LD_LIBRARY_PATH`` when
    the process started.
    """
    try:
        library = ctypes.CDLL(path, os.RTLD_NOW | os.RTLD_GLOBAL)
        library.gpufleet_session_names()
    except (AttributeError, OSError) as problem:
        raise RuntimeError(f"the driver library is not that of this version of gpufleet: {problem}") from None
    if any(_handle(name) != library._handle for name in _NAMES):
        raise RuntimeError(
            f"another library of this process is loaded as {' or '.join(_NAMES)}; start a process without it, and open"
            " the session before the first CUDA call"
        )
    # The library connects now. Later, the variable would also reach child processes, which must not take the session.
    changed = Changed()
    changed.set(SOCKET, socket)
    try:
        code = library.cuInit(0)
    finally:
        changed.undo()
    if code:
        raise RuntimeError(f"the driver library does not connect to the session: cuInit returned {code}")


def _handle(name: str) -> int | None:
    try:
        return ctypes.CDLL(name)._handle
    except OSError:
        return None
