"""Submits the jobs of a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpufleet._errors import explain
from gpufleet._plan import Plan, Stage, plan
from gpufleet._remote import RemoteArray
from gpufleet._task import Buffer, Input, Key, Program, Ref, Stored, Task

if TYPE_CHECKING:
    from gpufleet._connection import Connection
    from gpufleet._future import Future, Outputs

__all__ = ["planned_for", "submit_plan"]


def submit_plan(connection: Connection, plan: Plan, finish: Callable[[Outputs], Any] = dict) -> list[Future[Any]]:
    """Submits each job when those that it needs have ended. Returns a future for each job.

    The results are outputs by name. `finish` makes the result of the last job.
    """
    makers: dict[Key, Stage] = {}
    futures: dict[Stage, Future[Any]] = {}
    for stage in plan.stages:
        needs = list(dict.fromkeys(makers[ref.key] for ref in stage.refs.values()))
        is_last = stage is plan.stages[-1]
        submit = _Submission(connection, stage, finish if is_last else dict, {need: futures[need] for need in needs})
        if needs:
            inputs = [futures[need] for need in needs]
            futures[stage] = connection.submit_after(inputs, submit, stage.task.options, own=True)
        else:
            futures[stage] = submit()
        makers.update(dict.fromkeys(stage.makes, stage))
    return list(futures.values())


def planned_for(task: Task, finish: Callable[[Outputs], Any]) -> tuple[Plan, Callable[[Outputs], Any]]:
    """Returns the jobs for a task whose buffers other tasks make, and the function that makes the last job's result."""
    planned = plan([(task, name) for name in task.outputs])
    last = planned.stages[-1]

    def finish_task(outputs: Outputs) -> Any:
        return finish({name: outputs[last.makes[task, name]] for name in task.outputs})

    return planned, finish_task


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Submission:
    """Submits the job of a stage when the jobs that it needs have ended."""

    connection: Connection
    stage: Stage
    finish: Callable[[Outputs], Any]
    needs: Mapping[Stage, Future[Outputs]]

    def __call__(self) -> Future[Any]:
        made = {
            key: stage_future.result()[name]
            for stage, stage_future in self.needs.items()
            for key, name in stage.makes.items()
        }
        task = self.stage.task
        buffers = {name: _filled(buffer, made) for name, buffer in task.buffers.items()}
        # What only later jobs read need not come here.
        unread = not self.stage.wanted
        filled = dataclasses.replace(task, buffers=buffers)
        return self.connection.submit(filled, _Finish(self.finish, task.program), unread=unread)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Finish:
    """Makes the result of a stage."""

    finish: Callable[[Outputs], Any]
    program: Program

    def __call__(self, outputs: Outputs) -> Any:
        return self.finish(outputs)

    def explain(self, error: BaseException) -> None:
        explain(error, self.program)


def _filled(buffer: Buffer, made: Mapping[Key, npt.NDArray[Any] | RemoteArray]) -> Buffer:
    if not isinstance(buffer, Ref):
        return buffer
    elements = made[buffer.key]
    if isinstance(elements, RemoteArray):
        return Stored(elements.digest, buffer.shape, buffer.dtype)
    return Input(np.ascontiguousarray(elements).reshape(buffer.shape), buffer.dtype)
