"""The exceptions of the package."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from gpufleet._diagnostics import Diagnostic, Excerpt, parse, render, report

if TYPE_CHECKING:
    from gpufleet._program import ProgramResult
    from gpufleet._task import Program


class GpufleetError(Exception):
    """The base of all exceptions of this package."""


class ConnectError(GpufleetError, ConnectionError):
    """The client can not connect to the fleet."""


class FleetClosed(GpufleetError):
    """The connection was closed before the job's outcome arrived. A job that was sent keeps running."""


class ForkedError(GpufleetError):
    """The future belongs to the process that forked this one. Submit the job in this process, or wait in the parent."""


class WaitTimeout(GpufleetError, TimeoutError):
    """No outcome arrived before the timeout. The job keeps running, and a later wait can succeed."""


class ResultUnavailable(GpufleetError):
    """The job has an outcome, but the client can not read it. For example, an output is no longer in the blob store."""


class AttachError(GpufleetError):
    """The client can not wait for a job that was submitted earlier."""


class HistoryError(GpufleetError):
    """The recorded jobs can not be read."""


class CancelError(GpufleetError):
    """The broker did not take an order to cancel jobs."""


class StoreFailed(GpufleetError, OSError):
    """An array can not be stored in the blob store, or read from it."""


class SubmitError(GpufleetError):
    """The job was not submitted. A subclass says why."""

    retry_after: float | None = None
    """Seconds after which submitting again may succeed. None if that would not help."""


class InvalidJob(SubmitError, ValueError):
    """The description of the job is invalid. Nothing was sent."""


class JobTooLarge(SubmitError, ValueError):
    """The job does not fit into a message, and the client has no blob store."""


class NoQueue(SubmitError):
    """The pool has no queue, because no worker has ever served it."""


class QueueFull(SubmitError):
    """The queue of the pool is full."""


class MaybeSubmitted(SubmitError):
    """The broker did not confirm the job in time, so the job may or may not run.

    To be sure that it runs, submit it again with the same option `id`.
    """


class Failure(NamedTuple):
    """The reason why a worker ended a job without success."""

    verdict: str
    code: str
    message: str
    detail: str | None
    line: int | None
    source: Excerpt | None = None
    """The failing line of the program with the lines around it."""


class JobFailed(GpufleetError):
    """The job ended without success. There is a subclass for each failure code."""

    code: ClassVar[str | None] = None
    """The failure code, as in the reference of failure codes. None for the base class."""

    def __init__(self, message: str, job_id: str = "", failure: Failure | None = None) -> None:
        super().__init__(message)
        self.job_id = job_id
        self.failure = failure
        self.program: ProgramResult | None = None
        """What a host program left: its exit code, output and files. None for other jobs."""

    @property
    def verdict(self) -> str | None:
        """The party that is responsible: ``user``, ``timeout``, ``out_of_memory``, ``device`` or ``infrastructure``."""
        return self.failure.verdict if self.failure else None

    @property
    def detail(self) -> str | None:
        """A longer text, such as the compiler's log. None if there is none."""
        return self.failure.detail if self.failure else None

    @property
    def line(self) -> int | None:
        """The line number in the source or PTX that caused the failure. None if it is not known."""
        return self.failure.line if self.failure else None

    @property
    def source(self) -> Excerpt | None:
        """The failing line of the program with the lines around it. None if it is not known."""
        return self.failure.source if self.failure else None

    def __reduce__(self) -> tuple[object, ...]:
        # The state has the notes.
        return type(self), (str(self), self.job_id, self.failure), self.__dict__


class MalformedTask(JobFailed):
    """The worker can not read the message."""

    code: ClassVar[str | None] = "malformed_task"


class UnsupportedVersion(JobFailed):
    """The worker does not support this version of the wire format."""

    code: ClassVar[str | None] = "unsupported_version"


class InvalidTask(JobFailed):
    """The worker considers the description of the job invalid."""

    code: ClassVar[str | None] = "invalid_task"


class UnknownKernel(JobFailed):
    """The worker's catalog has no kernel with this name."""

    code: ClassVar[str | None] = "unknown_kernel"


class RequirementsNotMet(JobFailed):
    """No device meets the requirements of the job."""

    code: ClassVar[str | None] = "requirements_not_met"


class PolicyRefused(JobFailed):
    """The pool does not run programs of this kind, or only with a trusted signature."""

    code: ClassVar[str | None] = "policy"


class CompileError(JobFailed):
    """NVRTC can not compile the CUDA C++."""

    code: ClassVar[str | None] = "compile_error"

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The messages of the compiler, each with its line and column."""
        return parse(self.detail or "")


class LoadError(JobFailed):
    """The device's driver refused to load the program."""

    code: ClassVar[str | None] = "load_error"


class LaunchError(JobFailed):
    """The driver refused the launch, for example because a block has too many threads."""

    code: ClassVar[str | None] = "launch_error"


class KernelFault(JobFailed):
    """A kernel faulted, for example with an access out of bounds."""

    code: ClassVar[str | None] = "kernel_fault"


class Quarantined(JobFailed):
    """The program killed executors repeatedly, so workers refuse it for a while."""

    code: ClassVar[str | None] = "quarantined"


class TimeLimitReached(JobFailed):
    """The job ran longer than its time limit."""

    code: ClassVar[str | None] = "time_limit"


class QueueLimitReached(JobFailed):
    """The job waited longer than its queue limit."""

    code: ClassVar[str | None] = "queue_limit"


class OutOfMemory(JobFailed):
    """The job needs more device memory than it may use."""

    code: ClassVar[str | None] = "out_of_memory"


class OutputTooLarge(JobFailed):
    """The outputs do not fit into a message, and the client has no blob store."""

    code: ClassVar[str | None] = "output_too_large"


class BlobMissing(JobFailed):
    """An array of the job is not in the blob store."""

    code: ClassVar[str | None] = "blob_missing"


class BlobUnavailable(JobFailed):
    """The worker can not use the blob store."""

    code: ClassVar[str | None] = "blob_unavailable"


class ExecutorLost(JobFailed):
    """The process that ran the job died too often."""

    code: ClassVar[str | None] = "executor_lost"


class AttemptsExhausted(JobFailed):
    """The job was delivered too often without an outcome."""

    code: ClassVar[str | None] = "attempts_exhausted"


class DeviceLost(JobFailed):
    """The device failed."""

    code: ClassVar[str | None] = "device_lost"


class JobCancelled(JobFailed):
    """The job was cancelled by an order."""

    code: ClassVar[str | None] = "cancelled"


class ProgramFailed(JobFailed):
    """A host program or the program of a session exited with a code other than 0, or a signal ended it."""

    code: ClassVar[str | None] = "program_failed"


class ClientLost(JobFailed):
    """The client of a session has gone, or it never connected to the worker."""

    code: ClassVar[str | None] = "client_lost"


class IdleLimitReached(JobFailed):
    """The session made no calls for longer than its idle limit."""

    code: ClassVar[str | None] = "idle_limit"


class InternalError(JobFailed):
    """The worker failed because of a defect in gpufleet."""

    code: ClassVar[str | None] = "internal"


_BY_CODE: dict[str | None, type[JobFailed]] = {kind.code: kind for kind in JobFailed.__subclasses__()}


def explain(error: BaseException, program: Program | None) -> None:
    """Adds notes to the error of a job: the position in the caller's own file, and the worker's report."""
    # Only CUDA C++ has one.
    origin = getattr(program, "origin", None)
    if isinstance(error, CompileError):
        for diagnostic in error.diagnostics:
            if diagnostic.is_error:
                error.add_note(render(diagnostic, origin))
    elif isinstance(error, JobFailed) and (note := report(error.line, error.source, error.detail, origin)):
        error.add_note(note)


def failed(job_id: str, ended: str, failure: Failure | None) -> JobFailed:
    """Returns the exception for a job that ended without success. `ended` is its state, such as ``failed``."""
    reason = f": {failure.message}" if failure else ""
    kind = _BY_CODE.get(failure.code, JobFailed) if failure else JobFailed
    return kind(f"job {job_id} {ended}{reason}", job_id, failure)


def refused(kind: str, message: str, retry_after: float | None) -> GpufleetError:
    """Returns the exception for a job that was not submitted."""
    error = _NOT_SUBMITTED[kind](message)
    if isinstance(error, SubmitError):
        error.retry_after = retry_after
    return error


def lost(kind: str, message: str) -> FleetClosed | ResultUnavailable:
    """Returns the exception for a job whose outcome the client does not know."""
    return FleetClosed(message) if kind == FleetClosed.__name__ else ResultUnavailable(message)


_NOT_SUBMITTED: dict[str, type[GpufleetError]] = {
    kind.__name__: kind
    for kind in (SubmitError, InvalidJob, JobTooLarge, NoQueue, QueueFull, MaybeSubmitted, StoreFailed, FleetClosed)
}
