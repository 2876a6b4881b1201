"""Kernels in CUDA C++ of the user's own, with CuPy's classes and argument order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpufleet._binding import bind
from gpufleet._complex import with_complex
from gpufleet._diagnostics import origin_of
from gpufleet._launching import LaunchedKernel, compile_program
from gpufleet._signature import signature
from gpufleet._task import Options, Source

if TYPE_CHECKING:
    from gpufleet._fleet import Fleet

__all__ = ["RawKernel", "RawModule"]


class RawKernel(LaunchedKernel):
    """A kernel in CUDA C++: `kernel(grid, block, args)`.

    The parameters in the source decide what the arguments are: `const T*` takes an array that is only read, `T*` takes
    an array that also comes back, and a Python number takes the type of its parameter. A call with the wrong number of
    arguments or the wrong dtype fails before anything is sent.
    """

    _declares_reads = True

    def __init__(
        self, fleet: Fleet, code: str, name: str, options: Sequence[str] = (), *, job: Options | None = None
    ) -> None:
        found = signature(code, name, options)
        super().__init__(fleet, _source(code, options), name, name, partial(bind, found), job or Options())


class RawModule:
    """CUDA C++ with several kernels, which `get_function` returns by name.

    `name_expressions` lists the instances of templates, as in CuPy. It is not needed, because the worker compiles the
    instance that a job names; if it is given, other instances are refused.
    """

    def __init__(
        self,
        fleet: Fleet,
        *,
        code: str,
        options: Sequence[str] = (),
        name_expressions: Sequence[str] | None = None,
        job: Options | None = None,
    ) -> None:
        self._fleet = fleet
        self._code = code
        self._options = tuple(options)
        self._expressions = name_expressions
        self._program = _source(code, options)
        self._job = job or Options()

    def get_function(self, name: str) -> RawKernel:
        """The kernel of this name. A template's instance is named as in C++, such as `scale<float>`."""
        if self._expressions is not None and "<" in name and name not in self._expressions:
            raise ValueError(f"{name!r} is not in name_expressions, which has {', '.join(self._expressions)}")
        return RawKernel(self._fleet, self._code, name, self._options, job=self._job)

    def compile(self) -> None:
        """Compiles the code on a worker now. Raises `CompileError`.

        A worker compiles instances of templates when a job names them.
        """
        compile_program(self._fleet, self._program, self._job)


def _source(code: str, options: Sequence[str]) -> Source:
    return Source(with_complex(code), tuple(options), origin=origin_of(code))
