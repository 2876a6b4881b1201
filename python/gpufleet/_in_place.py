"""Kernels that write their outputs back into the arrays that were passed for them, as CuPy's do."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from gpufleet._binding import Bound
from gpufleet._kernel import Kernel, Prepared
from gpufleet._task import Task

__all__ = ["InPlaceKernel"]


class InPlaceKernel(Kernel[Any]):
    """A call writes into the caller's arrays. `.submit` and `.map` never change an argument and return new arrays."""

    _name: str

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self._name

    def __repr__(self) -> str:
        return f"<gpufleet.{type(self).__name__} {self._name!r}>"

    @abstractmethod
    def _bind(self, *args: Any, **kwargs: Any) -> tuple[Task, Bound]:
        """The job for these arguments, and where its outputs belong. Wrong arguments raise here."""

    def _packed(self, names: Sequence[str], values: Sequence[Any]) -> Any:
        """The result, made of the outputs in order."""
        return values[0] if len(values) == 1 else tuple(values)

    def _prepare(self, *args: Any, **kwargs: Any) -> Prepared[Any]:
        task, bound = self._bind(*args, **kwargs)
        outputs, packed = bound.outputs, self._packed

        def finish(results: Mapping[str, npt.NDArray[Any]]) -> Any:
            return packed([output.name for output in outputs], [output.take(results) for output in outputs])

        return Prepared(task, finish)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs a job, waits, and writes its outputs into the arrays that were passed for them.

        Returns these arrays, and new ones for outputs that were not passed. If the job fails, nothing is written.
        """
        task, bound = self._bind(*args, **kwargs)
        bound.check_targets()
        values = bound.write_back(self._fleet._submit(task, lambda results: bound.take(results)).result())
        return self._packed([output.name for output in bound.outputs], values)
