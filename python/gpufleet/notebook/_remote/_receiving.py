"""Takes what came back from a cell: the values of its names, what it showed, and its exception."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from gpufleet._amounts import about
from gpufleet._errors import GpufleetError
from gpufleet.notebook._remote.worker.values import MissingModule, load

__all__ = ["CellFailed", "error_of", "take"]


class CellFailed(GpufleetError):
    """A cell on a worker raised an exception whose class is not here."""


def take(shell: Any, folder: Path, report: Mapping[str, Any]) -> Iterator[str]:
    """Gives the names of the notebook their new values. Yields what to tell about it."""
    with (folder / "values").open("rb") as file:
        values, lost = load(file, report["back"], shell.user_global_ns, _module)
    shell.user_ns.update(values)
    for name in report["deleted"]:
        shell.user_ns.pop(name, None)
    told = sorted(name for name, value in values.items() if not isinstance(value, ModuleType | MissingModule))
    if told:
        yield f"came back: {', '.join(told)} ({about(sum(report['back'][name] for name in told))})"
    for name, problem in lost.items():
        install = "; install it here too" if isinstance(problem, ImportError) else ""
        yield _told(name, report, f"can't be read here: {type(problem).__name__}: {problem}{install}")
    for name, problem in report["lost"].items():
        yield _told(name, report, f"can't be sent back: {problem}")
    for name, size in report["too_large"].items():
        why = f"has {about(size)}, too much for --max-size with the others; allow more with --max-size"
        yield _told(name, report, why)


def _told(name: str, report: Mapping[str, Any], why: str) -> str:
    return f"{name} ({report['types'][name]}) did not come back: it {why}"


def error_of(shell: Any, folder: Path, error: Mapping[str, Any], left_out: Mapping[str, str]) -> BaseException:
    """Returns the exception of the cell, which notebooks show with the lines of the cell.

    `left_out` has the types of values that were not sent, which may be why a name is missing.
    """
    with (folder / "error").open("rb") as file:
        values, _ = load(file, error["sizes"], shell.user_global_ns, _module)
    found = values.get("error")
    lines = [*error["lines"], *_missing(error["text"], left_out)]
    try:
        return _shown_as(found if isinstance(found, BaseException) else CellFailed(error["text"]), lines)
    except AttributeError:
        # The class has no room for it.
        return _shown_as(CellFailed(error["text"]), lines)


def _missing(text: str, left_out: Mapping[str, str]) -> Iterator[str]:
    for name, kind in left_out.items():
        if f"name '{name}' is not defined" in text:
            yield f"{name} was not sent to the worker, because a {kind} can't be"


def _shown_as(error: BaseException, lines: Sequence[str]) -> BaseException:
    """IPython shows these lines in place of a traceback, which would have the frames of this package."""
    error._render_traceback_ = lambda: list(lines)  # type: ignore[attr-defined]
    return error


def _module(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ImportError:
        return MissingModule(name)
