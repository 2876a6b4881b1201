"""Iterates over the results of many jobs, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from gpufleet._future import Future
    from gpufleet._kernel import Prepared
    from gpufleet.notebook._many import ManyView

R = TypeVar("R")

CHUNK_JOBS = 256
"""The maximum number of jobs that are sent at once."""
CHUNK_BYTES = 8 << 20
"""The size of inputs from which no more jobs are sent at once."""
AHEAD_CHUNKS = 16
"""The number of chunks that are sent ahead of the caller. It bounds the memory for inputs and results."""

FAILURES_SHOWN = 20
"""The maximum number of failed jobs to keep for display."""


class Results(Generic[R], Iterator[R]):
    """The results of jobs, in the order of their inputs. Jobs are submitted before you ask for their results.

    A failed job raises its exception in its turn, and the next call of `next` continues after it. An input that is
    refused also raises in its turn, and ends the results. `len` works if all inputs have a length.
    """

    def __init__(
        self,
        jobs: Iterator[Prepared[R]],
        submit: Callable[[Sequence[Prepared[R]]], list[Future[R]]],
        length: int | None,
    ) -> None:
        self._jobs = jobs
        self._submit = submit
        self._length = length
        self._ahead: deque[deque[Future[R]]] = deque()
        self._refused: Exception | None = None
        self._taken = 0
        self._succeeded = 0
        self._failed = 0
        self._emulated = 0
        self._is_exhausted = False
        self._failures: list[tuple[int, Future[R]]] = []
        """The first failed jobs that the caller has reached, each with the index of its input."""
        self._send()

    def __iter__(self) -> Results[R]:
        return self

    def __next__(self) -> R:
        if len(self._ahead) < AHEAD_CHUNKS:
            self._send()
        while self._ahead and not self._ahead[0]:
            self._ahead.popleft()
        if self._ahead:
            return self._take(self._ahead[0].popleft())
        if self._refused is not None:
            error, self._refused = self._refused, None
            raise error
        raise StopIteration

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError("these results have no length, because the inputs have none")
        return self._length

    def __repr__(self) -> str:
        return repr(self._view())

    def _repr_html_(self) -> str:
        return self._view()._repr_html_()

    def _view(self) -> ManyView:
        from gpufleet.notebook._many import view_of_results  # noqa: PLC0415

        return view_of_results(self)

    def _take(self, future: Future[R]) -> R:
        try:
            result = future.result()
        except Exception:
            self._failed += 1
            if len(self._failures) < FAILURES_SHOWN:
                self._failures.append((self._taken, future))
            raise
        else:
            self._succeeded += 1
            return result
        finally:
            self._taken += 1
            if (report := future._report) is not None and report.is_emulated:
                self._emulated += 1

    def _send(self) -> None:
        if chunk := self._chunk():
            self._ahead.append(deque(self._submit(chunk)))

    def _chunk(self) -> list[Prepared[R]]:
        chunk: list[Prepared[R]] = []
        size = 0
        try:
            for job in self._jobs:
                chunk.append(job)
                size += job.task.input_bytes
                if len(chunk) == CHUNK_JOBS or size >= CHUNK_BYTES:
                    break
            else:
                self._is_exhausted = True
        except Exception as error:
            self._refused = error
        return chunk


def common_length(inputs: Iterable[object]) -> int | None:
    """Returns the length of the shortest input, or None if one of them has no length."""
    lengths = [len(each) if isinstance(each, Sized) else None for each in inputs]
    known = [length for length in lengths if length is not None]
    return min(known) if known and len(known) == len(lengths) else None
