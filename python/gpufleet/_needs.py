"""Finds futures among the arguments of a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from gpufleet._future import Future

__all__ = ["futures_in", "with_results"]

_FUTURE_OR_LIST = (Future, tuple, list)

ARGUMENTS_MAX = 512
"""The maximum number of arguments of a kernel. A longer sequence is an array of numbers."""


def futures_in(args: Iterable[Any], kwargs: Mapping[str, Any]) -> list[Future[Any]]:
    """Returns the futures among the arguments, each once."""
    found: dict[int, Future[Any]] = {}
    for value in (*args, *kwargs.values()):
        # Most arguments are neither.
        if isinstance(value, _FUTURE_OR_LIST):
            for each in value if _is_list(value) else (value,):
                if isinstance(each, Future):
                    found[id(each)] = each
    return list(found.values())


def with_results(args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments with results in place of futures. Waits for them."""
    return tuple(map(_result, args)), {name: _result(value) for name, value in kwargs.items()}


def _result(value: Any) -> Any:
    if isinstance(value, Future):
        return value.result()
    return tuple(_result(each) for each in value) if _is_list(value) else value


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, tuple | list) and len(value) <= ARGUMENTS_MAX
