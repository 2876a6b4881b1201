"""A million futures that threads, loops and cancellations share: each of them ends exactly once.

The broker is left out, because it would take minutes. A stand-in for the extension module answers each job at once, so
that everything above it is that of the package.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import queue
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

import gpufleet as gf
from gpufleet import _connection
from gpufleet._future import Future
from gpufleet._settings import Place, Settings
from gpufleet._task import Catalog, Options, Task

THREADS = 32
CHUNK = 250
ROUNDS = 125
"""The chunks of each thread: a million jobs together."""
SECONDS = 300


class Job:
    """A description that needs no wire format."""

    def __init__(self, task: Task, pool: str) -> None:
        self.id = "job"


class Client:
    """Answers jobs from a thread of its own, in the batches in which they come, sometimes the last ones first."""

    name = "stand-in"

    def __init__(self, url: str, **options: Any) -> None:
        self._sent: queue.SimpleQueue[Sequence[int] | None] = queue.SimpleQueue()
        self._random = random.Random(7)

    def submit_many(self, tokens: Sequence[int], jobs: Sequence[Job]) -> None:
        self._sent.put(tokens)

    def next(self) -> tuple[list[int], list[int], list[Any], list[Any], None] | None:
        tokens = self._sent.get()
        if tokens is None:
            return None
        ended = list(tokens)
        if self._random.random() < 0.5:
            ended.reverse()
        return list(tokens), ended, [("succeeded", None, [])] * len(ended), [], None

    def cancel(self, jobs: Sequence[str], labels: dict[str, str], by: str, wait: bool) -> None:
        pass

    def close(self, seconds: float) -> None:
        self._sent.put(None)


class Count:
    """How often something happened. Threads add to it without a lock of their own."""

    def __init__(self) -> None:
        self._next = itertools.count()

    def add(self, _: object = None) -> None:
        next(self._next)

    @property
    def total(self) -> int:
        return next(self._next)


@contextmanager
def connected(monkeypatch: pytest.MonkeyPatch) -> Iterator[_connection.Connection]:
    monkeypatch.setattr(_connection, "Client", Client)
    monkeypatch.setattr(_connection, "Job", Job)
    connection = _connection.Connection(Settings(), Place("amqp://stand-in", "argument", None), {})
    try:
        yield connection
    finally:
        connection.close()


def take_results(futures: Sequence[Future[Any]]) -> None:
    for future in futures:
        future.result(SECONDS)


def take_completed(futures: Sequence[Future[Any]]) -> None:
    assert set(gf.as_completed(futures, SECONDS)) == set(futures)


def wait_with_the_library(futures: Sequence[Future[Any]]) -> None:
    assert not concurrent.futures.wait(futures, SECONDS).not_done


def cancel_some(futures: Sequence[Future[Any]]) -> None:
    for future in futures[::2]:
        future.cancel_soon()
    wait_with_the_library(futures)


async def gather(futures: Sequence[Future[Any]]) -> None:
    await asyncio.gather(*futures)


async def first(futures: Sequence[Future[Any]]) -> None:
    await futures[0]


def await_all(futures: Sequence[Future[Any]]) -> None:
    asyncio.run(gather(futures))


def close_the_loop_early(futures: Sequence[Future[Any]]) -> None:
    """Leaves a loop in which futures are awaited."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)
    waiting = [loop.create_task(first([future])) for future in futures]
    loop.run_until_complete(waiting[len(waiting) // 2])
    loop.close()
    del waiting
    wait_with_the_library(futures)


WAYS: list[Callable[[Sequence[Future[Any]]], None]] = [
    take_results,
    take_completed,
    wait_with_the_library,
    cancel_some,
    await_all,
    close_the_loop_early,
    take_results,
    take_completed,
]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_million_futures_of_32_threads_end_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    finished, called, cancelled = Count(), Count(), Count()
    task = Task(Catalog("saxpy", {}), {}, (), (), Options())

    def work(connection: _connection.Connection, index: int) -> None:
        way = WAYS[index % len(WAYS)]
        for _ in range(ROUNDS):
            futures = connection.submit_many([task] * CHUNK, [finished.add] * CHUNK)
            futures[0].add_done_callback(called.add)
            way(futures)
            for future in futures:
                assert future.done()
                if future.cancelled():
                    cancelled.add()

    with connected(monkeypatch) as connection:
        threads = [threading.Thread(target=work, args=(connection, index), daemon=True) for index in range(THREADS)]
        failed: list[Any] = []
        monkeypatch.setattr(threading, "excepthook", failed.append)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive() and not failed
        assert not connection.open_futures() and connection._open.window._jobs == 0
    jobs = THREADS * ROUNDS * CHUNK
    assert jobs == 1_000_000
    # A future that is cancelled at the moment of its answer may have made its result before it knew.
    assert jobs - cancelled.total <= finished.total <= jobs
    assert called.total == THREADS * ROUNDS
