"""Kernels in the caller's CUDA C++, with CuPy's classes and argument order."""

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

    The parameters in the source determine the arguments. `const T*` takes an array that is only read, and `T*` an array
    that is also returned. A Python number takes the type of its parameter. A call with the wrong number of arguments or
    a wrong dtype raises `InvalidJob` before anything is sent.
    """

    _declares_reads = True

    def __init__(
        self, fleet: Fleet, code: str, name: str, options: Sequence[str] = (), *, job: Options | None = None
    ) -> None:
        found = signature(code, name, options)
        super().__init__(fleet, _source(code, options), name, name, partial(bind, found), job or Options())


class RawModule:
    """A module in CUDA C++ with several kernels, which `get_function` returns by name.

    `name_expressions` lists the instances of templates, as in CuPy. You can leave it out, because the worker compiles
    each instance that a job names. If you give it, other instances are refused.
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
        """Returns the kernel with this name. An instance of a template is named as in C++, such as `scale<float>`.

        Raises `ValueError` if the instance is not in `name_expressions`.
        """
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
