"""Awaits futures in asyncio. Waking a loop is expensive, so all futures that end at once wake it once.

The first `await` imports this module, because importing asyncio takes as long as importing the rest of the package.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Generator
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from gpufleet import _scope

if TYPE_CHECKING:
    from gpufleet._future import Future
    from gpufleet._progress import Progress

R = TypeVar("R")

_bridges: WeakKeyDictionary[asyncio.AbstractEventLoop, _Bridge] = WeakKeyDictionary()


def wait(future: Future[R]) -> Generator[Any, None, R]:
    """Waits in the running loop. If the wait is cancelled, the job is cancelled too; `asyncio.shield` prevents that."""
    if not future.done():
        _scope.waited(future)
        loop = asyncio.get_running_loop()
        bridge = _bridges.get(loop) or _bridges.setdefault(loop, _Bridge())
        try:
            arrival = _Arrival(bridge, loop.create_future())
            future._observe(arrival)
            yield from arrival.future.__await__()
        except asyncio.CancelledError:
            future.cancel_soon()
            raise
        if future.cancelled():
            raise asyncio.CancelledError
    return future.result()


async def updates(future: Future[Any]) -> AsyncIterator[Progress]:
    """Yields the progress of a job until it has ended."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[Progress | None] = asyncio.Queue()

    def arrive(progress: Progress | None) -> None:
        # A closed loop reads no progress.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(arrived.put_nowait, progress)

    future.add_progress_callback(arrive)
    future._observe(lambda _: arrive(None))
    while (progress := await arrived.get()) is not None:
        yield progress


class _Bridge:
    """The futures that have ended and that their loop has not processed yet."""

    def __init__(self) -> None:
        self._ended: list[asyncio.Future[None]] = []
        self._lock = threading.Lock()

    def push(self, ended: asyncio.Future[None]) -> None:
        with self._lock:
            self._ended.append(ended)
            is_first = len(self._ended) == 1
        if is_first:
            try:
                ended.get_loop().call_soon_threadsafe(self._drain)
            except RuntimeError:
                # The loop was closed, so nothing waits in it any more.
                self._ended.clear()

    def _drain(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
        for future in ended:
            if not future.done():
                future.set_result(None)


class _Arrival:
    """Passes the end of a future on to a loop."""

    __slots__ = ("_bridge", "future")

    def __init__(self, bridge: _Bridge, future: asyncio.Future[None]) -> None:
        self._bridge = bridge
        self.future = future

    def __call__(self, _: Future[Any]) -> None:
        self._bridge.push(self.future)


# The loops of the parent do not run in a child.
os.register_at_fork(after_in_child=_bridges.clear)
