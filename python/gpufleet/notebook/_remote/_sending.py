"""Packs a cell and the values that it needs into a folder, which goes to the worker."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from gpufleet._amounts import about
from gpufleet.notebook._options import CellError
from gpufleet.notebook._remote._code import Code, files_of, sources
from gpufleet.notebook._remote._names import assigned_by, needed, read_by, submodules

__all__ = ["PACKAGE", "Sent", "send"]

PACKAGE = "gpufleet_cell"
"""The name of the program in the working directory on the worker."""
NAMED = 3
"""The values that a message about sizes names."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The values that go along."""

    sizes: Mapping[str, int]
    left_out: Mapping[str, str]
    """The types of values that can't be sent and that the cell assigns anyway, it seems."""

    def __str__(self) -> str:
        if not self.sizes:
            return "sends the cell alone"
        largest = sorted(self.sizes, key=lambda name: -self.sizes[name])
        named = ", ".join(f"{name} {about(self.sizes[name])}" for name in largest[:NAMED])
        more = f" and {len(largest) - NAMED} more" if len(largest) > NAMED else ""
        return f"sends {about(sum(self.sizes.values()))}: {named}{more}"


def send(shell: Any, code: Code, bytes_max: int, folder: Path) -> Sent:
    """Writes the program, the cell and its values to a folder. Raises `CellError` if that is impossible."""
    values, cloudpickle = _modules()
    names = _names_of(shell)
    wanted = {name: names[name] for name in needed(read_by(code.tree()), names)}
    program = folder / PACKAGE
    _copy_package(Path(values.__file__ or "").parent, program)
    _copy_package(Path(cloudpickle.__file__ or "").parent, folder / cloudpickle.__name__)
    with (program / "sent").open("wb") as file:
        sizes, lost = values.dump(wanted, file, shell.user_global_ns, bytes_max=bytes_max)
    left_out = {name: values.type_name(wanted[name]) for name in lost}
    if unsent := lost.keys() - assigned_by(code.tree()):
        name = min(unsent)
        raise CellError(
            f"{name} ({left_out[name]}) can't be sent to the worker: {lost[name]}; make it in the cell instead"
        )
    types = {name: values.type_name(wanted[name]) for name in sizes}
    _check_size(sizes, types, bytes_max)
    request = {
        "python": sys.version_info[:2],
        "code": code.text,
        "file": code.file,
        "shows_last": code.shows_last,
        "sources": sources(shell, {code.file, *files_of(wanted.values())}),
        "modules": submodules(code.tree(), names),
        "sent": sizes,
        "types": types,
        "bytes_max": bytes_max,
    }
    (program / "request.json").write_text(json.dumps(request))
    return Sent(sizes, left_out)


def _modules() -> tuple[Any, ModuleType]:
    try:
        import cloudpickle  # noqa: PLC0415
    except ImportError as problem:
        raise ImportError("%%gpu --remote needs the package cloudpickle; install gpufleet[notebook]") from problem
    from gpufleet.notebook._remote.worker import values  # noqa: PLC0415

    return values, cloudpickle


def _names_of(shell: Any) -> dict[str, Any]:
    """Returns the names that the notebook has given, without those of IPython."""
    hidden = shell.user_ns_hidden
    return {name: value for name, value in shell.user_ns.items() if hidden.get(name, shell) is not value}


def _copy_package(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))


def _check_size(sizes: Mapping[str, int], types: Mapping[str, str], bytes_max: int) -> None:
    total = sum(sizes.values())
    if total > bytes_max:
        largest = sorted(sizes, key=lambda name: -sizes[name])[:NAMED]
        named = ", ".join(f"{name} ({types[name]}, {about(sizes[name])})" for name in largest)
        raise CellError(
            f"the values that the cell needs have {about(total)}, more than --max-size {about(bytes_max)}; the largest:"
            f" {named}; allow more with --max-size, or read large data on the worker"
        )
