"""Joins the programs of tasks to one program with all of their kernels."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

from gpufleet._core import Arguments
from gpufleet._task import Catalog, HostProgram, Program, Ptx, Section, SessionProgram, Source, Task

__all__ = ["first_free", "join", "kind_of"]


def kind_of(program: Program) -> Hashable:
    """Returns the kind of a program. Programs of one kind can be joined; None if a program can not be joined."""
    match program:
        case Source(_, options, Section()):
            return ("sections", options)
        case Source(code, options):
            return ("source", code, options)
        case Ptx(text):
            return ("ptx", text)
        case Catalog() | Arguments() | SessionProgram() | HostProgram():
            return None


def join(tasks: Sequence[Task]) -> tuple[Program, dict[Section, str]]:
    """Returns the program for tasks of one kind, and the entries of kernels that were generated."""
    first = tasks[0].program
    entries: dict[Section, str] = {}
    for task in tasks:
        if isinstance(task.program, Source) and (section := task.program.section) and section not in entries:
            entries[section] = first_free(task.launches[0].entry, entries.values())
    if not isinstance(first, Source) or not entries:
        return first, {}
    headers = "".join(dict.fromkeys(header for section in entries for header in section.headers))
    # Each kernel has types and functions of its own.
    kernels = (f"namespace _{entry} {{\n{section.kernel(entry)}}}\n" for section, entry in entries.items())
    return Source(headers + "".join(kernels), first.options), entries


def first_free(name: str, taken: Iterable[str]) -> str:
    """Returns the name, with a number if it is taken."""
    used = set(taken)
    return next(each for each in _numbered(name) if each not in used)


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}_{number}"
        number += 1
