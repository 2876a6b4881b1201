"""Options and labels for all jobs that the process submits while a scope is open, on any fleet.

Scopes belong to the process and not to a thread, because the threads of a notebook or a pipeline work for the same
cell.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpufleet._task import HostProgram, Options, Task

if TYPE_CHECKING:
    from gpufleet._future import Future

__all__ = ["Scope", "applied", "began", "entered", "waited", "within", "within_program"]


class Scope:
    """The options of jobs whose kernels have none of their own. None if the scope only follows jobs."""

    def __init__(self, options: Options | None) -> None:
        self.options = options
        self._pid = os.getpid()

    @property
    def is_inherited(self) -> bool:
        """Whether a parent process opened the scope. Its options apply in this process too."""
        return self._pid != os.getpid()

    def began(self, future: Future[Any]) -> None:
        """Called for each job after it was submitted."""

    def waited(self, future: Future[Any]) -> None:
        """Called when a thread begins to wait for the outcome of a job."""


_open: list[Scope] = []
"""The open scopes, the innermost one last."""


@contextmanager
def entered(scope: Scope) -> Iterator[None]:
    _open.append(scope)
    try:
        yield
    finally:
        _open.remove(scope)


def applied(task: Task) -> Task:
    """Returns the task with the options of the open scopes."""
    is_program = isinstance(task.program, HostProgram)
    options = within_program(task.options) if is_program else within(task.options)
    return task if options is task.options else replace(task, options=options)


def within(options: Options) -> Options:
    """Returns the options, completed by those of the open scopes."""
    for scope in reversed(_open):
        if scope.options is not None:
            options = options.within(scope.options)
    return options


def within_program(options: Options) -> Options:
    """Returns the options of a program, completed by those of the open scopes that are for programs too."""
    return options.placed_as(within(options))


def began(futures: Sequence[Future[Any]]) -> None:
    for scope in _open:
        if not scope.is_inherited:
            for future in futures:
                scope.began(future)


def waited(future: Future[Any]) -> None:
    for scope in _open:
        if not scope.is_inherited and not future.done():
            scope.waited(future)
