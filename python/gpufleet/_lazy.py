"""Lazy arrays, which are computed when they are needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from gpufleet._arrays import Like, restore
from gpufleet._plan import Plan, plan
from gpufleet._task import Ref

if TYPE_CHECKING:
    from gpufleet._fleet import Fleet
    from gpufleet._future import Future

__all__ = ["LazyArray"]


@dataclass(frozen=True, slots=True, eq=False)
class LazyArray:
    """An output of a job that was described but not submitted. `kernel.lazy(...)` makes it.

    Any kernel takes it in place of an array. The jobs that it needs run when it is computed, or when a job that uses it
    is submitted. Jobs whose kernels can share a program run as one job, and their intermediate arrays never leave the
    device. The caller's arrays are read only at that time.
    """

    fleet: Fleet
    like: Like
    ref: Ref

    @property
    def shape(self) -> tuple[int, ...]:
        return self.like.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.like.dtype

    @property
    def ndim(self) -> int:
        return len(self.like.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.like.shape))

    def compute(self) -> npt.NDArray[Any]:
        """Runs the jobs that this array needs, and returns its elements. Raises the exception of a failed job."""
        return self.submit().result()

    def submit(self) -> Future[npt.NDArray[Any]]:
        """Submits the jobs that this array needs. The result of the future has the elements."""
        planned = self.plan()
        name = planned.stages[-1].makes[self.ref.key]
        return self.fleet._submit_plan(planned, lambda outputs: restore(outputs[name], self.like))[-1]

    def plan(self) -> Plan:
        """Returns the jobs that this array needs. Print the plan to see them."""
        return plan([self.ref.key])

    def __repr__(self) -> str:
        return f"<gpufleet.LazyArray {self.dtype.name}{list(self.shape)} of {self.ref.task.options.name or 'a kernel'}>"

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError("a lazy array has no elements yet; call compute() first")
