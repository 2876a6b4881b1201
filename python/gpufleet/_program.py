"""Host programs: commands that run on a worker's machine, with a whole device."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpufleet import _core
from gpufleet._errors import JobFailed, ResultUnavailable
from gpufleet._future import Future, Outputs
from gpufleet._printed import in_notebook
from gpufleet._program_output import ProgramTranscript
from gpufleet._progress import Course, Progress
from gpufleet._remote import RemoteArray
from gpufleet._task import HostProgram, Options, Task

if TYPE_CHECKING:
    import numpy.typing as npt

    from gpufleet._connection import Connection
    from gpufleet._core import Report
    from gpufleet._fleet import Fleet

__all__ = ["ProgramFiles", "ProgramFuture", "ProgramResult", "submit_program"]

FOLLOW_SECONDS = 5.0
"""The longest wait for the broker to say that the output of a program will be received."""
LAST_LINES = 20
"""The lines of the output in the message of a program that failed."""
FILES = "files"
LOG = "log"
"""The names of the outputs of a host program."""


@dataclass(frozen=True)
class ProgramFiles:
    """The files that a host program brought back."""

    _archive: npt.NDArray[Any] | RemoteArray | None
    _connection: Connection | None = field(repr=False)

    def extract(self, folder: str | os.PathLike[str] = ".", *, replace: bool = False) -> list[Path]:
        """Writes the files to a folder, and returns their paths.

        If a file exists with other contents, nothing is written and `FileExistsError` is raised, unless `replace` is
        true. Large files come from the blob store, so extract them while the fleet is open.
        """
        if self._archive is None:
            return []
        if not isinstance(self._archive, RemoteArray):
            return _core.unpack(self._archive, os.fspath(folder), replace)
        return _open(self._connection).unpack(self._archive, os.fspath(folder), replace=replace)

    def __bool__(self) -> bool:
        return self._archive is not None

    def __getstate__(self) -> dict[str, Any]:
        # A connection belongs to its process.
        return {"_archive": self._archive, "_connection": None}


@dataclass(frozen=True)
class ProgramResult:
    """What a host program left."""

    job_id: str
    exit_code: int | None
    """The exit code of the command, or 128 + the number of the signal that ended it. None if the fleet ended it."""
    output: str
    """What the command printed to its standard output and standard error; of a long output, the last 64 KiB."""
    files: ProgramFiles
    """The files that the globs of `download` name."""
    _log: npt.NDArray[Any] | RemoteArray | None = field(default=None, repr=False)

    def log(self) -> str:
        """Returns all that the command printed. A long output comes from the blob store, while the fleet is open."""
        if self._log is None:
            return self.output
        if isinstance(self._log, RemoteArray):
            connection = _open(self.files._connection)
            log = connection.read(self._log.digest, self._log.wire_dtype, self._log.shape)
        else:
            log = self._log
        return bytes(log).decode(errors="replace")


class _Running(Progress):
    """The progress of a program, of which the fleet knows its output alone."""

    __slots__ = ()

    @property
    def _doing(self) -> str:
        return self.stage


class _Course(Course):
    """The progress of a program, which sends no messages while it prints nothing."""

    __slots__ = ()

    @property
    def is_fresh(self) -> bool:
        return self.latest is not None

    @property
    def current(self) -> Progress | None:
        if self.latest is None:
            return None
        return replace(self.latest, elapsed=self.latest.elapsed + time.monotonic() - self._received)


class ProgramFuture(Future[ProgramResult]):
    """The future of a host program. A program that fails raises `ProgramFailed`, whose `program` has what it left."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._course = _Course(_Running)
        if in_notebook():
            # It shows the output of a program that runs for hours, so it keeps less than that of a kernel.
            self._course.transcript = ProgramTranscript()

    def _complete(self, outputs: Outputs | None, error: BaseException | None, report: Report | None) -> None:
        if report is None:
            super()._complete(outputs, error, report)
            return
        program = self._left(outputs or {}, error, report)
        if isinstance(error, JobFailed):
            error.program = program
            if program.output:
                error.add_note(_last_lines(program.output))
        self._end(program, error, report)

    def _left(self, outputs: Outputs, error: BaseException | None, report: Report) -> ProgramResult:
        code, signal = report.exit if error is not None else (0, None)
        if signal is not None:
            code = 128 + signal
        files = ProgramFiles(outputs.get(FILES), self._connection)
        return ProgramResult(self.job_id, code, report.printed() or "", files, outputs.get(LOG))

    def _obstacle(self) -> str | None:
        return self._connection.obstacle(self._options.pool or self._connection.pool, of_programs=True)


def submit_program(
    fleet: Fleet,
    command: Sequence[str | os.PathLike[str]],
    *,
    env: str | None,
    image: str | None,
    variables: Mapping[str, str] | None,
    upload: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    download: str | Iterable[str],
    network: bool,
    **options: Any,
) -> ProgramFuture:
    """Submits the program of `Fleet.submit_program`."""
    if isinstance(command, str | bytes):
        raise TypeError(f'the command is a list of words, such as ["python", "train.py"], not {command!r}')
    if (env is None) == (image is None):
        raise TypeError("name the environment of the workers to run in, as in env='torch', or an image, not both")
    program = HostProgram(
        command=tuple(os.fspath(word) for word in command),
        environment=env,
        image=image,
        variables={name: str(value) for name, value in (variables or {}).items()},
        upload=tuple(_several(upload)),
        download=tuple(_several(download)),
        network=network,
    )
    task = Task(program, {}, (), (), Options().replace(**options))
    return fleet._submit_program(task)


def _several(given: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """Returns one path or several of them as a list."""
    paths = [given] if isinstance(given, str | os.PathLike) else given
    return [os.fspath(path) for path in paths]


def _open(connection: Connection | None) -> Connection:
    if connection is None:
        raise ResultUnavailable("another process ran the program, and it alone can read what is in the blob store")
    return connection


def _last_lines(output: str) -> str:
    lines = output.splitlines()
    left_out = len(lines) - LAST_LINES
    head = [f"  ({left_out} lines before are in `program.output` of the exception)"] if left_out > 0 else []
    return "\n".join(["the end of its output:", *head, *(f"  {line}" for line in lines[-LAST_LINES:])])
