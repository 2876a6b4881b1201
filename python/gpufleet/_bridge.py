"""Awaits futures in asyncio. All futures that end at once wake a loop once, because waking a loop is expensive.

Imported by the first `await`, because asyncio takes as long to import as the rest of the package.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from gpufleet._future import Future

R = TypeVar("R")

_bridges: WeakKeyDictionary[asyncio.AbstractEventLoop, _Bridge] = WeakKeyDictionary()


def wait(future: Future[R]) -> Generator[Any, None, R]:
    """Waits in the running loop. Cancelling the wait cancels the job; `asyncio.shield` prevents that."""
    if not future.done():
        loop = asyncio.get_running_loop()
        bridge = _bridges.get(loop) or _bridges.setdefault(loop, _Bridge())
        try:
            yield from bridge.arrival(future, loop).__await__()
        except asyncio.CancelledError:
            future.cancel_soon()
            raise
        if future.cancelled():
            raise asyncio.CancelledError
    return future.result()


class _Bridge:
    """The futures that have ended and whose loop does not know it yet."""

    def __init__(self) -> None:
        self._ended: deque[asyncio.Future[None]] = deque()
        self._lock = threading.Lock()
        self._is_woken = False

    def arrival(self, future: Future[Any], loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        arrival = loop.create_future()
        future._observe(lambda _: self._push(arrival, loop))
        return arrival

    def _push(self, arrival: asyncio.Future[None], loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._ended.append(arrival)
            wake, self._is_woken = not self._is_woken, True
        if wake:
            try:
                loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                # The loop was closed, so nothing waits in it any more.
                self._ended.clear()

    def _drain(self) -> None:
        with self._lock:
            ended, self._ended, self._is_woken = self._ended, deque(), False
        for arrival in ended:
            if not arrival.done():
                arrival.set_result(None)


# The loops of the parent do not run in a child.
os.register_at_fork(after_in_child=_bridges.clear)
