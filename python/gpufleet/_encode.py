"""Turns a task into a job of the extension module."""

from __future__ import annotations

from typing import Any

from gpufleet._core import Job
from gpufleet._errors import InvalidJob
from gpufleet._task import (
    Buffer,
    Catalog,
    Input,
    Launch,
    Options,
    Pointer,
    Program,
    Ptx,
    Ref,
    Source,
    Stored,
    Task,
    Zeros,
)


def job_of(task: Task, pool: str = "default") -> Job:
    """The job, checked as far as it can be without a device. Raises `InvalidJob`.

    `pool` is that of a task without a pool of its own.
    """
    job = _program(task.program)
    if task.options.id is not None:
        job.set_id(task.options.id)
    for name, buffer in task.buffers.items():
        _add_buffer(job, name, buffer)
    for launch in task.launches:
        _add_launch(job, launch)
    for name in task.outputs:
        job.output(name)
    for name in task.shared:
        job.share(name)
    _set_options(job, task.options, pool)
    job.check()
    return job


def shapes_of(task: Task) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The dtypes and shapes of all buffers of a catalog kernel."""
    job = _program(task.program)
    for name, buffer in task.buffers.items():
        shape = buffer.array.shape if isinstance(buffer, Input) else buffer.shape
        job.zeros(name, buffer.dtype, shape)
    return {name: (dtype, tuple(shape)) for name, (dtype, shape) in job.shapes().items()}


def input_bytes(task: Task) -> int:
    """The bytes of the arrays that the job carries."""
    size = 0
    for buffer in task.buffers.values():
        if isinstance(buffer, Input):
            size += buffer.array.nbytes
    return size


def _program(program: Program) -> Job:
    match program:
        case Catalog(name, scalars):
            return Job.catalog(name, scalars)
        case Source(code, options):
            return Job.source(code, options)
        case Ptx(text):
            return Job.ptx(text)


def _add_buffer(job: Job, name: str, buffer: Buffer) -> None:
    match buffer:
        case Input(array, dtype):
            # The buffer protocol has no shape for an array without dimensions.
            job.input(name, dtype, array.shape, array if array.ndim else array.reshape(1))
        case Zeros(shape, dtype):
            job.zeros(name, dtype, shape)
        case Stored(digest, shape, dtype):
            job.stored(name, digest, dtype, shape)
        case Ref():
            raise InvalidJob(f"buffer {name!r} is an array that no job has computed yet")


def _add_launch(job: Job, launch: Launch) -> None:
    job.launch(launch.entry, launch.grid, launch.block, launch.shared_bytes)
    for arg in launch.args:
        if isinstance(arg, Pointer):
            job.arg_buffer(arg.buffer, arg.element)
        else:
            job.arg_bytes(arg.data, arg.align)


def _set_options(job: Job, options: Options, pool: str) -> None:
    job.queue(options.pool or pool, options.priority or "normal")
    if options.name is not None:
        job.name(options.name)
    if options.labels:
        job.labels(dict(options.labels))
    limits = (options.time_limit, options.queue_limit, options.keep, options.attempts)
    if any(limit is not None for limit in limits):
        job.limits(*limits)
    if options.requires:
        job.requires(**_requirements(**options.requires))


def _requirements(
    *, device: str | None = None, compute_capability: tuple[int, int] | float | str | None = None, **unknown: Any
) -> dict[str, Any]:
    """The requirements in the form of the extension module. A capability is `(9, 0)`, `9.0` or `"9.0"`."""
    if unknown:
        name = next(iter(unknown))
        raise InvalidJob(f"requires: unknown requirement {name!r}; use device or compute_capability")
    if isinstance(compute_capability, int | float | str):
        major, _, minor = str(compute_capability).partition(".")
        if not (major.isdecimal() and (minor or "0").isdecimal()):
            raise InvalidJob(f"requires: {compute_capability!r} is not a compute capability; use one such as (9, 0)")
        compute_capability = (int(major), int(minor or 0))
    return {"device": device, "compute_capability": compute_capability}
