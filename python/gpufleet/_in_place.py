"""Kernels that write their outputs back into the caller's arrays, like CuPy's kernels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from gpufleet._binding import Bound, Output
from gpufleet._errors import explain
from gpufleet._kernel import Kernel, Prepared
from gpufleet._needs import futures_in, with_results
from gpufleet._printed import result_of
from gpufleet._task import Program, Task

__all__ = ["InPlaceKernel"]


class InPlaceKernel(Kernel[Any]):
    """A kernel whose calls write into the caller's arrays. `.submit` and `.map` change no argument and return new
    arrays.
    """

    _name: str

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self._name

    def __repr__(self) -> str:
        return f"<gpufleet.{type(self).__name__} {self._name!r}>"

    @abstractmethod
    def _bind(self, *args: Any, **kwargs: Any) -> tuple[Task, Bound]:
        """Returns the job for these arguments, and the destinations of its outputs. Wrong arguments raise here."""

    def _packed(self, names: Sequence[str], values: Sequence[Any]) -> Any:
        """Makes the result of the outputs in order."""
        return values[0] if len(values) == 1 else tuple(values)

    def lazy(self, *args: Any, **kwargs: Any) -> Any:
        task, bound = self._bind(*args, **kwargs)
        outputs = [output.lazy(self._fleet, task) for output in bound.outputs]
        return self._packed([output.name for output in bound.outputs], outputs)

    def _prepare(self, *args: Any, **kwargs: Any) -> Prepared[Any]:
        task, bound = self._bind(*args, **kwargs)
        return Prepared(task, _Packed(self, task.program, bound.outputs))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs a job, waits, and writes its outputs into the arrays that were passed for them.

        Returns these arrays, and new ones for outputs that were not passed. If the job fails, it raises the job's
        exception and writes nothing.
        """
        if futures_in(args, kwargs):
            args, kwargs = with_results(args, kwargs)
        task, bound = self._bind(*args, **kwargs)
        bound.check_targets()
        future = self._fleet._submit(task, _Finish(self, task.program, bound.outputs))
        values = bound.write_back(result_of(future))
        return self._packed([output.name for output in bound.outputs], values)


class _Finish:
    """Converts the outputs of a job to the caller's types."""

    __slots__ = ("_kernel", "_outputs", "_program")

    def __init__(self, kernel: InPlaceKernel, program: Program, outputs: Sequence[Output]) -> None:
        self._kernel = kernel
        self._program = program
        self._outputs = outputs

    def __call__(self, results: Mapping[str, npt.NDArray[Any]]) -> Any:
        return [output.take(results) for output in self._outputs]

    def explain(self, error: BaseException) -> None:
        explain(error, self._program)


class _Packed(_Finish):
    """Converts the outputs of a job to the kernel's result."""

    __slots__ = ()

    def __call__(self, results: Mapping[str, npt.NDArray[Any]]) -> Any:
        return self._kernel._packed([output.name for output in self._outputs], super().__call__(results))
