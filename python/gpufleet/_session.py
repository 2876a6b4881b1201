"""Sessions: this process uses the GPU of a worker through gpufleet's driver library."""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gpufleet import _amounts, _driver, _errors, _scope
from gpufleet._connection import error_of
from gpufleet._lease import AGAIN, Lease, request
from gpufleet._report import RanOn
from gpufleet._task import Options, SessionProgram, Task, seconds

if TYPE_CHECKING:
    from gpufleet._fleet import Fleet

__all__ = ["Session", "SessionCounters"]


@dataclass(frozen=True, slots=True)
class SessionCounters:
    """What a session did."""

    calls: int
    """Driver calls."""
    waits: int
    """Calls for whose answer the process waited."""
    sent_bytes: int
    """From the process to the worker."""
    received_bytes: int
    busy_us: int
    """The time in which the device worked for the session, in microseconds."""
    memory_bytes_peak: int
    """The most device memory that the process had at a time."""


class Session:
    """The GPU of a worker for this process. `Fleet.session` makes it.

    The session is open in a `with` block, or between `open` and `close`. In asyncio, `async with` does not block the
    event loop. A process has one session.
    """

    def __init__(self, fleet: Fleet, program: SessionProgram, options: Options, library: str) -> None:
        self._fleet = fleet
        self._program = program
        self._options = options
        self._library = library
        self._lease: Lease | None = None
        self._counters: SessionCounters | None = None
        self._gives_up = False

    def open(self) -> Self:
        """Waits for a worker, and makes its GPU that of this process. Call it before the first CUDA call.

        Raises `RuntimeError` if the process has had a session or has loaded another CUDA driver, `SubmitError` or
        `JobFailed` if no worker opens the session, and `ConnectError` if its worker can't be reached.
        """
        self._open()
        self._warn()
        return self

    def close(self) -> None:
        """Ends the session, as a block without an exception does. Closing twice is harmless."""
        _report(self._close(0), None)

    def __enter__(self) -> Self:
        self._open()
        self._warn()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _report(self._close(_exit_code(error)), error)

    async def __aenter__(self) -> Self:
        await self._open_without_blocking()
        self._warn()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import asyncio  # noqa: PLC0415

        _report(await asyncio.to_thread(self._close, _exit_code(error)), error)

    @property
    def job_id(self) -> str:
        """The id of the session's job, for the history."""
        return self._found.core.job_id

    @property
    def ran_on(self) -> RanOn:
        """The worker and the device."""
        return RanOn(*self._found.core.ran_on)

    @property
    def device_name(self) -> str:
        return self.ran_on.device_name

    @property
    def emulated(self) -> bool:
        """Whether the device is the emulated one, on the worker's CPU, and not a GPU."""
        return self.ran_on.emulated

    @property
    def memory_bytes(self) -> int:
        """The device memory of the session."""
        return self._found.core.memory_bytes

    @property
    def time_limit(self) -> float:
        """The time for which the session may be open, in seconds."""
        return self._found.core.time_limit

    @property
    def counters(self) -> SessionCounters | None:
        """What the session did. None before its end."""
        return self._counters

    def __repr__(self) -> str:
        if self._lease is None:
            return "<gpufleet.Session, not open>"
        return f"<gpufleet.Session {self._description}{', ended' if self._counters else ''}>"

    @property
    def _found(self) -> Lease:
        if self._lease is None:
            raise RuntimeError("the session was not opened; use it in a with statement, or call open()")
        return self._lease

    @property
    def _description(self) -> str:
        """The device and the lease, as `gpufleet run` describes them."""
        on = self.ran_on
        device = f"EMULATED device (runs on the CPU of worker {on.worker})"
        device = device if on.emulated else f"{on.device_name} on {on.worker}"
        away = self._found.core.round_trip * 1000
        lease = f"{_amounts.size(self.memory_bytes)} for {_amounts.time(self.time_limit)}"
        return f"{device}, {lease}, {away:.1f} ms away (job {self.job_id})"

    @property
    def _ended(self) -> str | None:
        """Why the session has ended, if the fleet has ended it."""
        return None if self._lease is None else self._lease.ended

    def _open(self) -> None:
        self._claim()
        try:
            lease = self._request()
        except BaseException:
            _owner.clear()
            raise
        self._lease = lease
        try:
            lease.use()
        except BaseException:
            self._close(1)
            raise
        # The end of the interpreter must not find a thread that waits in Rust.
        atexit.register(self._close, 0)

    def _claim(self) -> None:
        """Makes this the session of the process. Raises `RuntimeError` if it can't be."""
        if _driver.SOCKET in os.environ:
            raise RuntimeError(
                "this program was started by `gpufleet run` and can use its session; leave the call of Fleet.session"
                " out, or start the program without `gpufleet run`"
            )
        if (driver := _driver.loaded_driver()) is not None:
            raise RuntimeError(
                f"this process has loaded another CUDA driver, {driver}; open the session in a new process, before its"
                " first CUDA call"
            )
        if _owner.setdefault("session", self) is not self or self._lease is not None:
            raise RuntimeError(f"this process has had a session, and libraries keep the state of its driver; {AGAIN}")

    def _request(self) -> Lease:
        connection = self._fleet._connected()
        options = _scope.within_program(self._options)
        return request(connection, Task(self._program, {}, (), (), options), self._library, lambda: self._gives_up)

    async def _open_without_blocking(self) -> None:
        import asyncio  # noqa: PLC0415

        self._gives_up = False
        opening = asyncio.ensure_future(asyncio.to_thread(self._open))
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._gives_up = True
            await asyncio.wait([opening])
            # Only an error that nobody awaits would be logged.
            if opening.exception() is None:
                await asyncio.to_thread(self._close, 1)
            raise

    def _warn(self) -> None:
        try:
            if self.emulated:
                warnings.warn(f"the GPU of this session is an {self._description}", stacklevel=3)
            if "numba.cuda.cudadrv.driver" in sys.modules:
                warnings.warn(
                    "numba.cuda was imported before the session and has found no driver; import it in the block",
                    stacklevel=3,
                )
        except UserWarning:
            # The program makes warnings errors, so its block does not begin.
            self._close(1)
            raise

    def _close(self, code: int) -> _errors.GpufleetError | None:
        """Ends the session. Returns the reason if the fleet had ended it before."""
        lease = self._lease
        if lease is None or self._counters is not None or lease.is_inherited:
            return None
        end = lease.end(code)
        atexit.unregister(self._close)
        if end is None:
            return None
        is_early, reason, counters, failed = end
        self._counters = SessionCounters(*counters)
        error = None if failed is None else error_of(self.job_id, failed)
        if not (is_early or reason) or isinstance(error, _errors.ProgramFailed | _errors.KernelFault):
            return None
        return error or _errors.JobFailed(f"the session of job {self.job_id} ended early: {reason}", self.job_id)


_owner: dict[str, Session] = {}
"""The session of this process."""


def session_of(
    fleet: Fleet,
    memory: str | int,
    *,
    idle_limit: str | float | None,
    library: str | os.PathLike[str] | None,
    labels: Mapping[str, str] | None,
    requires: Mapping[str, Any] | None,
    **options: Any,
) -> Session:
    """Makes the session of `Fleet.session`."""
    limit = None if idle_limit is None else seconds(idle_limit)
    program = SessionProgram(_label(), _amounts.bytes_of(memory), limit)
    given = Options().replace(**options, labels=labels or {}, requires=requires or {})
    return Session(fleet, program, given, _driver.find(library, fleet._environment))


def _report(problem: BaseException | None, error: BaseException | None) -> None:
    """Raises the reason for which the fleet ended a session, or adds it to the exception of the block."""
    if problem is None:
        return
    if error is None:
        problem.add_note(AGAIN)
        raise problem
    error.add_note(f"{problem}; {AGAIN}")


def _exit_code(error: BaseException | None) -> int:
    """Returns the exit code that a program whose block ends like this has."""
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        code = error.code
        return code & 0xFF if isinstance(code, int) else int(code is not None)
    return 1


def _label() -> str:
    """Returns the names of the interpreter and of the program, as in `python3 train.py`. Arguments may have secrets."""
    words = [sys.executable, *sys.argv[:1]]
    return " ".join(os.path.basename(word) for word in words if word and not word.startswith("-"))
