"""Plans the jobs that lazy arrays need. This module does not use the fleet.

Tasks whose kernels can share a program become one job, a *stage*: its launches run in order on one device, and the
arrays between them are buffers of the job. A stage reads the arrays of earlier stages as inputs.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpufleet._joining import kind_of
from gpufleet._merging import merge
from gpufleet._task import Key, Options, Ref, Task

__all__ = ["Plan", "Stage", "plan"]

LAUNCHES_MAX = 1024
BUFFERS_MAX = 256
"""The maximum number of launches and of buffers of a job."""


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A job of a plan."""

    task: Task
    """The task of the job. Its buffers are the caller's arrays or outputs of earlier stages."""
    makes: Mapping[Key, str]
    """The outputs of the job, by the buffers of the described tasks."""
    wanted: tuple[Key, ...]
    """The buffers that the caller asked for."""

    @property
    def refs(self) -> dict[str, Ref]:
        """The buffers that come from earlier stages, by name."""
        return {name: buffer for name, buffer in self.task.buffers.items() if isinstance(buffer, Ref)}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Plan:
    """The jobs of a plan. Each job comes after the jobs that it needs."""

    stages: tuple[Stage, ...]

    def with_options(self, change: Callable[[Options], Options]) -> Plan:
        """Returns the plan with other options for its jobs."""
        return Plan(
            tuple(
                dataclasses.replace(stage, task=dataclasses.replace(stage.task, options=change(stage.task.options)))
                for stage in self.stages
            )
        )

    @property
    def launches(self) -> int:
        """The number of launches of all jobs together."""
        return sum(max(len(stage.task.launches), 1) for stage in self.stages)

    @property
    def input_bytes(self) -> int:
        """The total size in bytes of the caller's arrays that are sent."""
        return sum(stage.task.input_bytes for stage in self.stages)

    def __repr__(self) -> str:
        return "\n".join(f"job {number}: {_summary(stage)}" for number, stage in enumerate(self.stages, 1))


def plan(wanted: Sequence[Key]) -> Plan:
    """Plans as few jobs as possible to compute these buffers."""
    tasks = _in_order(task for task, _ in wanted)
    uses = _Uses(tasks, wanted)
    stages: list[_Members] = []
    place: dict[Task, int] = {}
    for task in tasks:
        earliest = max((place[ref.task] + uses.must_copy(ref, task) for ref in _refs(task)), default=0)
        index = next((i for i in range(earliest, len(stages)) if stages[i].takes(task)), len(stages))
        if index == len(stages):
            stages.append(_Members(task))
        stages[index].add(task)
        place[task] = index
    return Plan(tuple(_stage(members.tasks, uses, wanted) for members in stages))


def _stage(tasks: Sequence[Task], uses: _Uses, wanted: Sequence[Key]) -> Stage:
    merged = merge(tasks)
    own = set(tasks)
    makes = {key: name for key, name in merged.made.items() if uses.is_output(key, own)}
    task = dataclasses.replace(merged.task, outputs=tuple(dict.fromkeys(makes.values())))
    return Stage(task, makes, tuple(key for key in wanted if key[0] in own))


def _in_order(tasks: Iterable[Task]) -> list[Task]:
    """Returns these tasks and the tasks that they need. Each task comes after those that it needs."""
    found: dict[Task, None] = {}
    # Not recursive, because a chain may be longer than Python's stack.
    open_ = [(task, False) for task in reversed(list(tasks))]
    while open_:
        task, is_ready = open_.pop()
        if task in found:
            continue
        if is_ready:
            found[task] = None
            continue
        open_.append((task, True))
        open_.extend((ref.task, False) for ref in reversed(_refs(task)))
    return list(found)


def _refs(task: Task) -> list[Ref]:
    return [buffer for buffer in task.buffers.values() if isinstance(buffer, Ref)]


class _Uses:
    """The tasks that read each output."""

    def __init__(self, tasks: Sequence[Task], wanted: Sequence[Key]) -> None:
        self._readers: dict[Key, set[Task]] = {}
        for task in tasks:
            for ref in _refs(task):
                self._readers.setdefault(ref.key, set()).add(task)
        self._wanted = set(wanted)

    def must_copy(self, ref: Ref, task: Task) -> bool:
        """Returns whether a task may write to this buffer although its elements are needed elsewhere.

        Such a task belongs to a later stage, which gets a copy.
        """
        is_needed = ref.key in self._wanted or len(self._readers[ref.key]) > 1
        return is_needed and any(buffer is ref for name, buffer in task.buffers.items() if name not in task.shared)

    def is_output(self, key: Key, stage: set[Task]) -> bool:
        """Returns whether an output of a stage is needed outside of the stage."""
        return key in self._wanted or not self._readers.get(key, set()) <= stage


class _Members:
    """The tasks of a stage."""

    def __init__(self, first: Task) -> None:
        self.tasks: list[Task] = []
        self._kind = kind_of(first.program)
        self._options = dataclasses.replace(first.options, name=None)
        self._launches = self._buffers = 0
        self._has_counter = False

    def takes(self, task: Task) -> bool:
        return (
            self._kind is not None
            and self._kind == kind_of(task.program)
            and self._options == dataclasses.replace(task.options, name=None)
            and self._launches + len(task.launches) <= LAUNCHES_MAX
            and self._buffers + len(task.buffers) <= BUFFERS_MAX
            # A job has one counter, which would count the steps of both.
            and not (self._has_counter and task.has_counter)
        )

    def add(self, task: Task) -> None:
        self.tasks.append(task)
        self._launches += len(task.launches)
        self._has_counter |= task.has_counter
        # Most references are to buffers of the same stage.
        self._buffers += len(task.buffers) - len(_refs(task))


def _summary(stage: Stage) -> str:
    task = stage.task
    entries = Counter(launch.entry for launch in task.launches) or Counter([task.options.name or "kernel"])
    parts = [", ".join(entry if count == 1 else f"{count}x {entry}" for entry, count in entries.items())]
    if size := task.input_bytes:
        parts.append(f"{size:,} bytes of inputs")
    if stage.refs:
        parts.append(f"{len(stage.refs)} arrays of earlier jobs")
    parts.append(f"returns {', '.join(task.outputs)}")
    return "; ".join(parts)
