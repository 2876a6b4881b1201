"""Cells in CUDA C++."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gpufleet._diagnostics import Origin, render
from gpufleet._errors import CompileError
from gpufleet._fleet import Fleet
from gpufleet._raw import RawKernel
from gpufleet._signature import c_kernels, signature
from gpufleet._task import Source
from gpufleet.notebook._arguments import CellParameter, arguments
from gpufleet.notebook._options import CellError, CellOptions

__all__ = ["CellCompileError", "Defined", "define", "explained", "prepare"]


class CellCompileError(CompileError):
    """A compile error of a cell. IPython shows it without the frames of this package."""

    def _render_traceback_(self) -> list[str]:
        return [f"{CompileError.__name__}: {self}", *getattr(self, "__notes__", [])]


class Defined:
    """The kernels that a cell defined, for people."""

    def __init__(self, signatures: Sequence[str]) -> None:
        self.signatures = signatures

    def __repr__(self) -> str:
        return "\n".join(f"defined {each}" for each in self.signatures)


def define(fleet: Fleet, code: str, options: CellOptions, origin: Origin) -> tuple[dict[str, RawKernel], Defined]:
    """Compiles a cell, and makes an object of each of its kernels."""
    names = _names(code, options)
    module = fleet.RawModule(code=code, options=options.nvrtc)
    kernels = {name: _placed(module.get_function(name), origin) for name in names}
    with explained(origin):
        module.compile()
    return kernels, Defined([_spelled(code, name, options) for name in names])


def prepare(
    fleet: Fleet, code: str, options: CellOptions, names: Mapping[str, Any], origin: Origin
) -> tuple[RawKernel, list[CellParameter], list[Any]]:
    """The kernel of a cell that runs at once, its parameters and its arguments."""
    name = chosen(_names(code, options), options)
    found = signature(code, name, options.nvrtc)
    if found.parameters is None:
        raise CellError(f"the parameters of kernel {name!r} can't be read, because {found.problem}; write %%gpu alone")
    parameters = [
        CellParameter(each.name, each.is_pointer, each.is_pointer and not each.is_input) for each in found.parameters
    ]
    kernel = _placed(fleet.RawKernel(code, name, options.nvrtc), origin)
    return kernel, parameters, arguments(name, parameters, options, names)


def _placed(kernel: RawKernel, origin: Origin) -> RawKernel:
    """The kernel of a cell, whose errors name the lines of the cell."""
    assert isinstance(kernel._program, Source), "it is a RawKernel"
    kernel._program = replace(kernel._program, origin=origin)
    return kernel


def chosen(names: Sequence[str], options: CellOptions) -> str:
    """The kernel that a cell runs."""
    if options.kernel is None and len(names) == 1:
        return names[0]
    if options.kernel in names:
        return str(options.kernel)
    raise CellError(f"--kernel has to be one of {', '.join(names)}")


@contextmanager
def explained(origin: Origin) -> Iterator[None]:
    """Shows compile errors with the lines of the cell."""
    try:
        yield
    except CompileError as error:
        shown = CellCompileError(str(error), error.job_id, error.failure)
        for diagnostic in error.diagnostics:
            if diagnostic.is_error:
                shown.add_note(render(diagnostic, origin))
        raise shown from None


def _names(code: str, options: CellOptions) -> list[str]:
    names = c_kernels(code, options.nvrtc)
    if not names:
        raise CellError('the cell has no kernel; a kernel begins with extern "C" __global__ void')
    return names


def _spelled(code: str, name: str, options: CellOptions) -> str:
    parameters = signature(code, name, options.nvrtc).parameters
    inside = "..." if parameters is None else ", ".join(f"{each.type} {each.name}" for each in parameters)
    return f"{name}({inside})"
