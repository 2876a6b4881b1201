"""Ordered results of many jobs, with a bounded number of them in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["WINDOW", "Results"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

WINDOW = 4096
"""Jobs that are submitted ahead of the result that is read: enough for full messages to several workers."""


class _Pending(Protocol[T_co]):
    def result(self, timeout: float | None = None) -> T_co: ...
    def cancel(self) -> bool: ...


class Results(Generic[T]):
    """Yields results in the order of the arguments. It has a length if they have one, so tqdm shows progress.

    Closing it, or leaving its loop early, cancels the jobs whose results were not read.
    """

    def __init__(self, submit: Callable[[Any], _Pending[T]], arguments: Iterable[Any], window: int = WINDOW) -> None:
        self._length = len(arguments) if isinstance(arguments, Sized) else None
        self._results = _ordered(submit, iter(arguments), window)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return next(self._results)

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError("the number of results is unknown, because the arguments come from an iterator")
        return self._length

    def close(self) -> None:
        """Cancels the jobs whose results were not read."""
        self._results.close()


def _ordered(submit: Callable[[Any], _Pending[T]], arguments: Iterator[Any], window: int) -> Generator[T, None, None]:
    pending: deque[_Pending[T]] = deque()
    try:
        for each in arguments:
            pending.append(submit(each))
            if len(pending) >= window:
                yield _first(pending)
        while pending:
            yield _first(pending)
    finally:
        for future in pending:
            future.cancel()


def _first(pending: deque[_Pending[T]]) -> T:
    """The next result. An interrupt leaves its job with those to cancel."""
    result = pending[0].result()
    pending.popleft()
    return result
