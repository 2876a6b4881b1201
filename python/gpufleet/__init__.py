"""Runs CUDA kernels on the GPUs of a fleet, from a machine without a GPU.

>>> import numpy as np
>>> import gpufleet as gf
>>> with gf.Fleet() as fleet:
...     saxpy = fleet.kernel("saxpy")
...     saxpy(a=2.0, x=np.ones(3, np.float32), y=np.zeros(3, np.float32))
array([2., 2., 2.], dtype=float32)
"""

import importlib as _importlib
import typing as _typing

from gpufleet._batch import Batch
from gpufleet._catalog import CatalogKernel
from gpufleet._diagnostics import Diagnostic, Excerpt
from gpufleet._errors import (
    AttachError,
    AttemptsExhausted,
    BlobMissing,
    BlobUnavailable,
    CancelError,
    ClientLost,
    CompileError,
    ConnectError,
    DeviceLost,
    ExecutorLost,
    Failure,
    FleetClosed,
    ForkedError,
    GpufleetError,
    HistoryError,
    IdleLimitReached,
    InternalError,
    InvalidJob,
    InvalidTask,
    JobCancelled,
    JobFailed,
    JobTooLarge,
    KernelFault,
    LaunchError,
    LoadError,
    MalformedTask,
    MaybeSubmitted,
    NoQueue,
    OutOfMemory,
    OutputTooLarge,
    PolicyRefused,
    ProgramFailed,
    Quarantined,
    QueueFull,
    QueueLimitReached,
    RequirementsNotMet,
    ResultUnavailable,
    StoreFailed,
    SubmitError,
    TimeLimitReached,
    UnknownKernel,
    UnsupportedVersion,
    WaitTimeout,
)
from gpufleet._executor import KernelExecutor
from gpufleet._fleet import Fleet
from gpufleet._future import Future, as_completed
from gpufleet._history import History
from gpufleet._lazy import LazyArray
from gpufleet._progress import Count, Progress
from gpufleet._remote import RemoteArray
from gpufleet._report import RanOn, Timings
from gpufleet._results import Results
from gpufleet._task import ProgressCounter
from gpufleet._zeros import ZeroArray, zeros

if _typing.TYPE_CHECKING:
    from gpufleet._elementwise import ElementwiseKernel
    from gpufleet._numba import NumbaKernel
    from gpufleet._program import ProgramFiles, ProgramFuture, ProgramResult
    from gpufleet._ptx import PtxKernel
    from gpufleet._raw import RawKernel, RawModule
    from gpufleet._reduction import ReductionKernel
    from gpufleet._session import Session, SessionCounters

__all__ = [
    "AttachError",
    "AttemptsExhausted",
    "Batch",
    "BlobMissing",
    "BlobUnavailable",
    "CancelError",
    "CatalogKernel",
    "ClientLost",
    "CompileError",
    "ConnectError",
    "Count",
    "DeviceLost",
    "Diagnostic",
    "ElementwiseKernel",
    "Excerpt",
    "ExecutorLost",
    "Failure",
    "Fleet",
    "FleetClosed",
    "ForkedError",
    "Future",
    "GpufleetError",
    "History",
    "HistoryError",
    "IdleLimitReached",
    "InternalError",
    "InvalidJob",
    "InvalidTask",
    "JobCancelled",
    "JobFailed",
    "JobTooLarge",
    "KernelExecutor",
    "KernelFault",
    "LaunchError",
    "LazyArray",
    "LoadError",
    "MalformedTask",
    "MaybeSubmitted",
    "NoQueue",
    "NumbaKernel",
    "OutOfMemory",
    "OutputTooLarge",
    "PolicyRefused",
    "ProgramFailed",
    "ProgramFiles",
    "ProgramFuture",
    "ProgramResult",
    "Progress",
    "ProgressCounter",
    "PtxKernel",
    "Quarantined",
    "QueueFull",
    "QueueLimitReached",
    "RanOn",
    "RawKernel",
    "RawModule",
    "ReductionKernel",
    "RemoteArray",
    "RequirementsNotMet",
    "ResultUnavailable",
    "Results",
    "Session",
    "SessionCounters",
    "StoreFailed",
    "SubmitError",
    "TimeLimitReached",
    "Timings",
    "UnknownKernel",
    "UnsupportedVersion",
    "WaitTimeout",
    "ZeroArray",
    "as_completed",
    "load_ipython_extension",
    "zeros",
]

_LAZY = {
    "ElementwiseKernel": "gpufleet._elementwise",
    "NumbaKernel": "gpufleet._numba",
    "ProgramFiles": "gpufleet._program",
    "ProgramFuture": "gpufleet._program",
    "ProgramResult": "gpufleet._program",
    "PtxKernel": "gpufleet._ptx",
    "RawKernel": "gpufleet._raw",
    "RawModule": "gpufleet._raw",
    "ReductionKernel": "gpufleet._reduction",
    "Session": "gpufleet._session",
    "SessionCounters": "gpufleet._session",
}
"""Names of modules that many programs do not need. They are imported at their first use."""


def load_ipython_extension(ipython: object) -> None:
    """Adds the magics for notebooks. IPython calls this for `%load_ext gpufleet`."""
    from gpufleet.notebook._magics import load  # noqa: PLC0415

    load(ipython)


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> _typing.Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
