"""Many jobs: order, failures in between, back-pressure and memory."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpufleet as gf
from gpufleet._results import CHUNK_JOBS
from gpufleet._window import Window

X = np.arange(4, dtype=np.float32)


def test_a_thousand_jobs_come_back_in_order(fleet: gf.Fleet) -> None:
    inputs = [np.full(4, index, np.float32) for index in range(1000)]
    results = fleet.kernel("saxpy").map(inputs, a=2.0, y=X)
    assert len(results) == 1000
    for index, result in enumerate(results):
        np.testing.assert_array_equal(result, 2.0 * index + X)


def test_map_is_lazy_and_has_no_length_then(fleet: gf.Fleet) -> None:
    taken = 0

    def inputs() -> Iterator[Any]:
        nonlocal taken
        while True:
            taken += 1
            yield X

    results = fleet.kernel("saxpy").map(inputs(), a=1.0, y=X)
    with pytest.raises(TypeError, match="no length"):
        len(results)
    np.testing.assert_array_equal(next(results), 2 * X)
    assert taken <= 2 * CHUNK_JOBS


def test_starmap_takes_tuples(fleet: gf.Fleet) -> None:
    results = fleet.kernel("saxpy").starmap([(float(a), X, X) for a in range(5)])
    assert len(results) == 5
    for a, result in enumerate(results):
        np.testing.assert_array_equal(result, (a + 1) * X)


def test_a_failed_job_raises_at_its_place(fleet: gf.Fleet) -> None:
    # Each job has this time beside the endless one, which occupies the processor.
    samples = fleet.kernel("monte_carlo_pi").options(time_limit="3s")
    results = samples.map([1000, 10**15, 1000])
    first = next(results)
    with pytest.raises(gf.TimeLimitReached):
        next(results)
    assert next(results) == first
    with pytest.raises(StopIteration):
        next(results)


def test_a_refused_input_raises_at_its_place(fleet: gf.Fleet) -> None:
    results = fleet.kernel("saxpy").map([X, X.astype(np.float64), X], a=1.0, y=X)
    np.testing.assert_array_equal(next(results), 2 * X)
    with pytest.raises(TypeError, match="is float64"):
        next(results)
    assert list(results) == []


def test_no_inputs_make_no_results(fleet: gf.Fleet) -> None:
    results = fleet.kernel("saxpy").map([], a=1.0, y=X)
    assert (len(results), list(results)) == (0, [])


def test_a_full_window_makes_callers_wait() -> None:
    window = Window(jobs_max=2, bytes_max=100)
    window.enter(1, 1000)
    entered = threading.Event()

    def enter() -> None:
        window.enter(1, 1)
        entered.set()

    other = threading.Thread(target=enter)
    other.start()
    assert not entered.wait(0.05), "the bytes are used up"
    window.leave(0, 1000)
    assert entered.wait(10)
    third = threading.Thread(target=window.enter, args=(1, 1))
    third.start()
    third.join(0.05)
    assert third.is_alive(), "both jobs are open"
    window.leave(1, 0)
    third.join(10)
    other.join()
    assert not third.is_alive()


def test_the_thread_that_makes_room_does_not_wait() -> None:
    window = Window(jobs_max=1, bytes_max=1)
    window.exempt = threading.get_ident()
    window.enter(1, 1)
    window.enter(1, 1)


def test_an_open_future_is_small(fleet: gf.Fleet) -> None:
    future = fleet.kernel("saxpy").submit(1.0, X, X)
    assert "_condition" not in future.__dict__
    future.result()
    gc.collect()
    size = sys.getsizeof(future) + sys.getsizeof(future.__dict__) + sys.getsizeof(future.job_id)
    assert size < 700
