"""Merges tasks into one task, which has their launches in order and shares their buffers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpufleet._joining import first_free, join
from gpufleet._task import Buffer, Input, Key, Launch, Pointer, Ref, Section, Source, Stored, Task, Zeros

__all__ = ["Merged", "merge"]


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """A task that replaces several tasks."""

    task: Task
    """The merged task. It has no outputs yet."""
    made: Mapping[Key, str]
    """The outputs of the replaced tasks, with their names in the merged task."""


def merge(tasks: Sequence[Task]) -> Merged:
    """Merges tasks of one kind. They must be in order: each comes after the tasks that it needs."""
    if len(tasks) == 1:
        (task,) = tasks
        made = {(task, name): name for name in task.outputs}
        return Merged(dataclasses.replace(task, outputs=()), made)
    program, entries = join(tasks)
    merging = _Merging()
    for task in tasks:
        merging.add(task, entries)
    shared = tuple(merging.read_only.values())
    task = Task(program, merging.buffers, tuple(merging.launches), (), tasks[-1].options, shared)
    return Merged(task, merging.made)


@dataclass(slots=True)
class _Merging:
    buffers: dict[str, Buffer] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    made: dict[Key, str] = field(default_factory=dict)
    read_only: dict[tuple[Any, ...], str] = field(default_factory=dict)
    """Inputs that no kernel writes to, by their identity. Tasks share them."""

    def add(self, task: Task, entries: Mapping[Section, str]) -> None:
        names = {name: self._name_of(task, name, buffer) for name, buffer in task.buffers.items()}
        section = task.program.section if isinstance(task.program, Source) else None
        for launch in task.launches:
            args = tuple(
                dataclasses.replace(arg, buffer=names[arg.buffer]) if isinstance(arg, Pointer) else arg
                for arg in launch.args
            )
            entry = launch.entry if section is None else entries[section]
            self.launches.append(dataclasses.replace(launch, entry=entry, args=args))
        self.made.update({(task, name): names[name] for name in task.outputs})

    def _name_of(self, task: Task, name: str, buffer: Buffer) -> str:
        """Returns the name of a task's buffer in the merged task. Adds the buffer if it is new."""
        if isinstance(buffer, Ref) and (made := self.made.get(buffer.key)) is not None:
            return made
        if name not in task.shared:
            return self._add(name, buffer)
        place = _place_of(buffer)
        if place not in self.read_only:
            self.read_only[place] = self._add(name, buffer)
        return self.read_only[place]

    def _add(self, name: str, buffer: Buffer) -> str:
        free = first_free(name, self.buffers)
        self.buffers[free] = buffer
        return free


def _place_of(buffer: Buffer) -> tuple[Any, ...]:
    """Returns what identifies the elements of an input."""
    match buffer:
        case Input(array, dtype):
            return (array.__array_interface__["data"][0], array.shape, dtype)
        case Stored(digest, shape, dtype):
            return (digest, shape, dtype)
        case Ref():
            return buffer.key
        case Zeros():
            return (id(buffer),)
