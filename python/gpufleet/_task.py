"""A job as plain data. Kernel objects build it, and `_core` turns it into a message.

The extension module reads these classes by the names of their fields.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy.typing as npt

from gpufleet._core import Arguments
from gpufleet._errors import InvalidJob

if TYPE_CHECKING:
    from gpufleet._diagnostics import Origin
    from gpufleet._progress import Progress

__all__ = [
    "Argument",
    "Buffer",
    "Catalog",
    "HostProgram",
    "Input",
    "Key",
    "Launch",
    "Options",
    "Pointer",
    "Program",
    "ProgressCounter",
    "Ptx",
    "Ref",
    "Section",
    "SessionProgram",
    "Source",
    "Stored",
    "Task",
    "Value",
    "Zeros",
    "seconds",
]


# Making a frozen object takes five times as long. What each job has of its own is not frozen, and never changed.
@dataclass(slots=True, eq=False)
class Input:
    """A buffer with the caller's bytes: C-contiguous, little-endian, with a dtype of the wire format."""

    array: npt.NDArray[Any]
    dtype: str


@dataclass(slots=True, unsafe_hash=True)
class Zeros:
    """A buffer that starts as zeros, which are not in the message."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A buffer whose bytes are in the blob store."""

    digest: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Ref:
    """A buffer that another task makes. A plan replaces it by a buffer of the same task, or by its contents."""

    task: Task
    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def key(self) -> Key:
        return (self.task, self.name)


@dataclass(slots=True, unsafe_hash=True)
class Pointer:
    """A kernel argument that is the device address of an element of a buffer."""

    buffer: str
    element: int = 0


@dataclass(slots=True, unsafe_hash=True)
class Value:
    """A kernel argument by value, in the device's layout."""

    data: bytes
    align: int


@dataclass(frozen=True, slots=True)
class ProgressCounter:
    """A kernel argument that counts the steps of a job, for `Future.progress`.

    The kernel's parameter is an ``unsigned long long *``: the address of a number that is zero at first and that the
    kernel increments with ``atomicAdd``. `total` is the number when all work is done. A job has one counter, also if
    several of its launches get one.

    >>> ProgressCounter(20_000)
    ProgressCounter(total=20000)
    """

    total: int

    def __post_init__(self) -> None:
        try:
            total = operator.index(self.total)
        except TypeError:
            raise TypeError(f"the total of a progress counter is a number of steps, not {self.total!r}") from None
        if not 1 <= total < 1 << 64:
            raise ValueError(f"the total of a progress counter is between 1 and 2**64 - 1, not {total}")
        object.__setattr__(self, "total", total)


@dataclass(slots=True, unsafe_hash=True)
class Launch:
    """A launch. `grid` and `block` are extents in x, y and z."""

    entry: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[Argument, ...]
    shared_bytes: int = 0


@dataclass(slots=True, eq=False)
class Catalog:
    """A kernel of the catalog. Its manifest has the launch and the shapes of the buffers."""

    name: str
    scalars: Mapping[str, int | float]


@dataclass(frozen=True, slots=True)
class Section:
    """A kernel that can share its source with others."""

    headers: tuple[str, ...]
    """The code that the kernel needs at file scope. Equal texts are included once."""
    declarations: str
    """The code that the kernel needs in a scope of its own."""
    definition: str
    """The kernel's code from its parameter list on."""

    def kernel(self, entry: str) -> str:
        return f'{self.declarations}extern "C" __global__ void {entry}{self.definition}'


@dataclass(frozen=True, slots=True)
class Source:
    """CUDA C++, which a worker compiles with NVRTC."""

    code: str
    options: tuple[str, ...] = ()
    section: Section | None = None
    """The code as a section, if it is a single kernel that can share its source with others."""
    origin: Origin | None = field(default=None, compare=False)
    """The position of the code in the caller's file."""


@dataclass(frozen=True, slots=True)
class Ptx:
    """PTX as text."""

    text: str


@dataclass(frozen=True, slots=True)
class SessionProgram:
    """No kernel: a program of this machine uses the device."""

    label: str
    memory_bytes: int
    idle_limit: float | None = None


@dataclass(frozen=True, slots=True)
class HostProgram:
    """No kernel: a command that runs on the worker's machine, in an environment or an image of the worker."""

    command: tuple[str, ...]
    environment: str | None
    image: str | None
    variables: Mapping[str, str]
    upload: tuple[str, ...]
    """The files and folders that go with it."""
    download: tuple[str, ...]
    """Globs of the files that come back."""
    network: bool


Argument = Pointer | Value | ProgressCounter
Buffer = Input | Zeros | Stored | Ref
Program: TypeAlias = Catalog | Arguments | Source | Ptx | SessionProgram | HostProgram


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a job. Times are in seconds. An option that is None has the default of the fleet or the pool."""

    pool: str | None = None
    priority: str | None = None
    name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    time_limit: float | None = None
    queue_limit: float | None = None
    keep: float | None = None
    attempts: int | None = None
    requires: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    """The id of the job, a UUID. By default each job gets a new one.

    Set it in programs that may start again and repeat a submission, and derive it from names that do not change, such
    as those of a pipeline and its step. Submitting an id again may run the job again. The history then shows one job
    with an attempt for each run, and the outcome of the latest submission.
    """
    on_progress: Callable[[Progress], object] | None = None
    """Called with each progress of the job, like a function of `Future.add_progress_callback`."""

    def requirements(self) -> tuple[str | None, tuple[int, int] | None]:
        """Returns the required device and compute capability. The latter may be given as `(9, 0)`, `9.0` or `"9.0"`.

        Raises `InvalidJob` for other requirements.

        >>> Options(requires={"compute_capability": "9.0"}).requirements()
        (None, (9, 0))
        """
        if unknown := self.requires.keys() - {"device", "compute_capability"}:
            raise InvalidJob(f"requires: unknown requirement {min(unknown)!r}; use device or compute_capability")
        capability = self.requires.get("compute_capability")
        if isinstance(capability, int | float | str):
            major, _, minor = str(capability).partition(".")
            if not (major.isdecimal() and (minor or "0").isdecimal()):
                raise InvalidJob(f"requires: {capability!r} is not a compute capability; use one such as (9, 0)")
            capability = (int(major), int(minor or 0))
        return self.requires.get("device"), capability

    def within(self, outer: Options) -> Options:
        """Returns these options, completed by those of `outer`.

        >>> Options(pool="a").within(Options(pool="b", time_limit=3.0)).time_limit
        3.0
        """
        unset = {
            option.name: getattr(outer, option.name)
            for option in dataclasses.fields(self)
            if getattr(self, option.name) is None or (option.name == "requires" and not self.requires)
        }
        return dataclasses.replace(self, **unset, labels={**outer.labels, **self.labels})

    def placed_as(self, other: Options) -> Options:
        """Returns these options with the pool, the labels and the requirements of others.

        Programs that have a device or a part of it take no priority and no limits of jobs with kernels.
        """
        return dataclasses.replace(self, pool=other.pool, labels=other.labels, requires=other.requires)

    def replace(self, **changes: Any) -> Options:
        """Returns a copy with these options. Labels are added to the present ones. Raises `TypeError` for an unknown
        option.

        >>> Options().replace(pool="team-a", time_limit="30s").time_limit
        30.0
        """
        known = {option.name for option in dataclasses.fields(self)}
        if unknown := sorted(changes.keys() - known):
            raise TypeError(f"unknown option {unknown[0]!r}; the options are {', '.join(sorted(known))}")
        for name in ("time_limit", "queue_limit", "keep"):
            if changes.get(name) is not None:
                changes[name] = seconds(changes[name])
        if not callable(changes.get("on_progress", print)) and changes["on_progress"] is not None:
            raise TypeError(f"on_progress is a function that takes a gpufleet.Progress, not {changes['on_progress']!r}")
        if "labels" in changes:
            changes["labels"] = {**self.labels, **changes["labels"]}
        return dataclasses.replace(self, **changes)


@dataclass(slots=True, eq=False)
class Task:
    """Everything that a worker needs to run a job."""

    program: Program
    buffers: Mapping[str, Buffer]
    launches: tuple[Launch, ...]
    outputs: tuple[str, ...]
    options: Options = field(default_factory=Options)
    shared: tuple[str, ...] = ()
    """The inputs that the kernels only read. A device need not copy them for each job."""

    @property
    def input_bytes(self) -> int:
        """The total size in bytes of the arrays that the job's message contains."""
        size = self.program.input_bytes if isinstance(self.program, Arguments) else 0
        for buffer in self.buffers.values():
            if isinstance(buffer, Input):
                size += buffer.array.nbytes
        return size

    @property
    def has_counter(self) -> bool:
        """Whether the job has a progress counter."""
        return any(isinstance(arg, ProgressCounter) for launch in self.launches for arg in launch.args)

    @property
    def has_refs(self) -> bool:
        """Whether other tasks make some of the buffers."""
        # A generator would take longer than the look.
        for buffer in self.buffers.values():  # noqa: SIM110
            if isinstance(buffer, Ref):
                return True
        return False


Key = tuple[Task, str]
"""A buffer of a task: the task and the buffer's name."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*")


def seconds(time: str | float) -> float:
    """Converts a time to seconds: a number of seconds, or a text such as `30s`. Raises `ValueError` for other values.

    >>> seconds("1.5m"), seconds(2)
    (90.0, 2.0)
    """
    if isinstance(time, str):
        found = _DURATION.fullmatch(time)
        if found is None:
            raise ValueError(f"{time!r} is not a time; write a number with a unit, such as 500ms, 30s, 5m, 2h or 1d")
        return float(found[1]) * _UNITS[found[2]]
    if not time > 0:
        raise ValueError(f"{time!r} is not a time; give a positive number of seconds")
    return float(time)
