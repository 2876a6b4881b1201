"""Jobs that belong together, executors, confirmation and interrupts."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
from test_futures import SPIN, UNSERVED, spinning, task

import gpufleet as gf
from gpufleet._window import Window

X = np.arange(4, dtype=np.float32)


def state_of(fleet: gf.Fleet, job_id: str) -> str:
    """The state in the ledger, once the job is recorded as ended."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = [row["state"] for row in fleet.history(limit=1000) if row["job_id"] == job_id]
        if found and found[0] not in ("queued", "running"):
            return str(found[0])
        time.sleep(0.1)
    raise AssertionError(f"job {job_id} did not end in the ledger")


def test_a_batch_waits_for_its_jobs(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")
    with fleet.batch(labels={"run": "7"}) as batch:
        futures = [saxpy.submit(float(a), X, X) for a in range(10)]
        list(saxpy.map([1.0, 2.0], x=X, y=X))
        saxpy(3.0, X, X)
    outside = saxpy.submit(1.0, X, X)
    assert all(future.done() for future in futures)
    assert batch.futures[:10] == tuple(futures)
    assert len(batch) == 13
    assert outside not in list(batch)
    assert [result[1] for result in batch.results()] == [*range(1, 11), 2, 3, 4]
    assert batch.kernel_seconds > 0
    assert batch.id in repr(batch)


def test_jobs_of_a_batch_have_its_options_and_labels(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")
    with fleet.batch(labels={"run": "7"}, priority="high", name="mine") as batch:
        plain = saxpy.submit(1.0, X, X)
        named = saxpy.options(name="own", labels={"run": "8", "part": "a"}).submit(1.0, X, X)
        lazy = fleet.ElementwiseKernel("T x", "T y", "y = x", "copy").lazy(saxpy.lazy(1.0, X, X)).submit()
        after = saxpy.submit(1.0, plain, X)
    assert len(batch) == 4, "a chain counts once"
    jobs = {row["job_id"]: row for row in wait_for(fleet, {"batch": batch.id}, 5)}
    assert jobs[plain.job_id]["labels"] == {"run": "7", "batch": batch.id}
    assert jobs[named.job_id]["labels"] == {"run": "8", "part": "a", "batch": batch.id}
    assert (jobs[plain.job_id]["name"], jobs[named.job_id]["name"]) == ("mine", "own")
    assert {lazy.job_id, after.job_id} < jobs.keys()


def wait_for(fleet: gf.Fleet, labels: dict[str, str], count: int) -> gf.History:
    deadline = time.monotonic() + 30
    while len(found := fleet.history(labels=labels)) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} jobs were recorded"
        time.sleep(0.1)
    return found


def test_batches_nest(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")
    with fleet.batch(labels={"a": "1"}, priority="low") as outer:
        with fleet.batch(labels={"b": "2"}) as inner:
            saxpy.submit(1.0, X, X)
        saxpy.submit(1.0, X, X)
    assert (len(outer), len(inner)) == (2, 1)
    (row,) = wait_for(fleet, {"batch": inner.id}, 1)
    assert row["labels"] == {"a": "1", "b": "2", "batch": inner.id}
    assert row["priority"] == "low"
    with pytest.raises(RuntimeError, match="has a block already"), outer:
        pass


def test_other_threads_and_fleets_are_not_in_the_batch(fleet: gf.Fleet, environment: None) -> None:
    with gf.Fleet() as other, fleet.batch() as batch:
        other.kernel("saxpy").submit(1.0, X, X)
        thread = threading.Thread(target=lambda: fleet.kernel("saxpy").submit(1.0, X, X))
        thread.start()
        thread.join()
    assert len(batch) == 0


def test_an_exception_cancels_the_batch(fleet: gf.Fleet) -> None:
    with pytest.raises(ZeroDivisionError), fleet.batch() as batch:
        spinning(fleet)
        raise ZeroDivisionError
    (future,) = batch
    assert future.cancelled()
    assert state_of(fleet, future.job_id) == "cancelled"


def test_a_job_that_needs_an_ended_one_counts_once(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")
    ended = saxpy.submit(1.0, X, X)
    ended.result()
    with fleet.batch() as batch:
        after = saxpy.submit(1.0, ended, X)
    assert batch.futures == (after,)


def test_an_exception_cancels_the_batches_inside(fleet: gf.Fleet) -> None:
    with pytest.raises(ZeroDivisionError), fleet.batch() as outer:
        inner = fleet.batch()
        inner.__enter__()
        spinning(fleet)
        inner.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        assert not outer.futures[0].done(), "an interrupt leaves the jobs alone"
        raise ZeroDivisionError
    (future,) = outer
    assert future.cancelled()
    assert state_of(fleet, future.job_id) == "cancelled"


def test_failures_in_a_batch_are_raised_by_its_results(fleet: gf.Fleet) -> None:
    with fleet.batch() as batch:
        fleet._submit(task('extern "C" __global__ void k(unsigned *x, unsigned n) { x[0] = y; }', "k"))
    with pytest.raises(gf.CompileError):
        batch.results()


def test_an_executor_runs_kernels(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")
    with fleet.executor() as executor:
        future = executor.submit(saxpy, 2.0, X, y=X)
        assert [list(y) for y in executor.map(saxpy, [1.0, 2.0], [X, X], [X, X])] == [list(2 * X), list(3 * X)]
    assert future.done()
    assert isinstance(executor, concurrent.futures.Executor)
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(saxpy, 2.0, X, X)
    with pytest.raises(TypeError, match="not a kernel; workers run CUDA kernels"):
        executor.submit(print, 1)


def test_an_executor_cancels_its_jobs(fleet: gf.Fleet) -> None:
    executor = fleet.executor()
    spin = fleet.RawKernel(SPIN, "spin").options(time_limit="60s")
    future = executor.submit(spin, 1, 1, (gf.zeros(1, np.uint32), 0))
    executor.shutdown(cancel_futures=True)
    assert future.cancelled()


def test_a_confirmed_job_is_on_disk(fleet: gf.Fleet) -> None:
    future = spinning(fleet)
    future.confirmed(30)
    assert not future.done()
    future.cancel()
    ended = fleet.kernel("saxpy").submit(1.0, X, X)
    ended.result()
    ended.confirmed(0)
    dependent = fleet.kernel("saxpy").submit(1.0, ended, ended)
    dependent.confirmed(30)
    assert dependent.job_id


def test_a_refused_job_is_never_confirmed(fleet: gf.Fleet) -> None:
    future = fleet.kernel("saxpy").options(pool=UNSERVED).submit(1.0, X, X)
    with pytest.raises(gf.NoQueue):
        future.confirmed(30)


def test_submitting_from_asyncio_leaves_the_loop_free(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")

    async def main() -> list[Any]:
        futures = [await saxpy.asubmit(float(a), X, X) for a in range(3)]
        return [await future for future in futures]

    assert [list(y) for y in asyncio.run(main())] == [list((a + 1) * X) for a in range(3)]


def test_submitting_from_asyncio_waits_for_room_in_a_thread(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")
    connection = fleet._connected()
    open_jobs = connection._open
    open_jobs.window, free = Window(jobs_max=1), open_jobs.window
    open_jobs.window.exempt = free.exempt

    async def main() -> None:
        held = spinning(fleet)
        waiting = asyncio.create_task(saxpy.asubmit(1.0, X, X))
        ticks = 0
        while ticks < 100:
            await asyncio.sleep(0)
            ticks += 1
        assert not waiting.done()
        held.cancel_soon()
        assert list(await (await waiting)) == list(2 * X)

    asyncio.run(main())


INTERRUPTED = """
import signal
import gpufleet as gf
from test_futures import spinning

# A shell starts background processes with this signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

with gf.Fleet(on_interrupt={on_interrupt!r}) as fleet:
    future = spinning(fleet)
    future.confirmed(60)
    print(future.job_id, flush=True)
    future.result()
"""


@pytest.mark.parametrize("on_interrupt", ["cancel", "detach"])
def test_ctrl_c_cancels_if_the_program_says_so(fleet: gf.Fleet, on_interrupt: str) -> None:
    code = INTERRUPTED.format(on_interrupt=on_interrupt)
    path = os.pathsep.join(sys.path)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        assert process.stdout is not None
        job_id = process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    if on_interrupt == "detach":
        assert all(row["state"] in ("queued", "running") for row in fleet.history() if row["job_id"] == job_id)
        fleet.cancel([job_id])
    assert state_of(fleet, job_id) == "cancelled"


def test_history_has_rows_and_frames(fleet: gf.Fleet) -> None:
    label = {"history": "test"}
    fleet.kernel("saxpy").options(labels=label).submit(1.0, X, X).result()
    (row,) = wait_for(fleet, label, 1)
    assert row["kernel"] == "saxpy"
    assert json.dumps(row)
    assert fleet.history(labels=label, state="failed") == []
    assert fleet.history(labels=label, kernel="saxpy", pool="default", since="1h", state=["succeeded", "running"])
    frame = fleet.history(labels=label).to_frame()
    assert list(frame["kernel"]) == ["saxpy"]
    assert str(frame["created_at"].dtype).startswith("datetime64")


def test_history_says_what_it_lacks(fleet: gf.Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(gf.HistoryError, match="invalid value 'soon'"):
        fleet.history(since="soon")
    url = fleet._place.url
    with gf.Fleet(url) as other, pytest.raises(gf.HistoryError, match="set GPUFLEET_DATABASE_URL"):
        other.history()
    monkeypatch.setenv("GPUFLEET_BIN_DIR", "/nonexistent")
    with pytest.raises(gf.HistoryError, match="not on PATH"):
        fleet.history()


def test_on_interrupt_is_checked() -> None:
    with pytest.raises(ValueError, match="'detach' or 'cancel'"):
        gf.Fleet(on_interrupt="ignore")  # type: ignore[arg-type]
