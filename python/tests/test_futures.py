"""Futures: results, waits, cancellation and failures."""

from __future__ import annotations

import asyncio
import concurrent.futures
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from ledger import poll

import gpufleet as gf
from gpufleet._task import Launch, Options, Pointer, Source, Task, Value, Zeros

X = np.arange(4, dtype=np.float32)
UNSERVED = "nobody-serves-this"
SPIN = """
extern "C" __global__ void spin(unsigned *x, unsigned n) {
    for (unsigned i = 0; i != n || n == 0; ++i) { x[0] = i; if (n == 0 && i == ~0u) i = 1; }
}"""


def task(code: str, entry: str, *, number: int = 0, **options: Any) -> Task:
    """A job with one buffer of one number, whose kernel takes the buffer and a number."""
    args = (Pointer("x"), Value(number.to_bytes(4, "little"), 4))
    launch = Launch(entry, (1,), (1,), args)
    return Task(Source(code), {"x": Zeros((1,), "u32")}, (launch,), ("x",), Options().replace(**options))


def spinning(fleet: gf.Fleet, **options: Any) -> gf.Future[Any]:
    """A job that never ends by itself."""
    return fleet._submit(task(SPIN, "spin", time_limit="60s", **options))


def test_a_future_has_the_result_and_what_the_worker_measured(fleet: gf.Fleet) -> None:
    future = fleet.kernel("saxpy").submit(2.0, X, X)
    np.testing.assert_array_equal(future.result(timeout=30), 3 * X)
    assert future.done() and not future.cancelled() and future.exception() is None
    assert future.timings is not None and future.ran_on is not None
    assert 0 < future.timings.kernel <= future.timings.total < future.timings.round_trip
    assert future.ran_on.emulated and future.ran_on.worker.startswith("gpufleet-w")
    assert future.job_id in repr(future)


def test_futures_complete_in_any_order(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")
    futures = {saxpy.submit(float(a), X, X): a for a in range(20)}
    seen = {futures[future]: future.result() for future in gf.as_completed(futures, timeout=30)}
    assert sorted(seen) == list(range(20))
    for a, result in seen.items():
        np.testing.assert_array_equal(result, (a + 1) * X)


def test_the_standard_library_takes_futures(fleet: gf.Fleet) -> None:
    futures = [fleet.kernel("saxpy").submit(1.0, X, X) for _ in range(3)]
    done, not_done = concurrent.futures.wait(futures, timeout=30)
    assert (len(done), len(not_done)) == (3, 0)
    called: list[gf.Future[Any]] = []
    for future in futures:
        future.add_done_callback(called.append)  # type: ignore[arg-type]
    assert called == futures


def test_a_callback_runs_when_the_job_ends(fleet: gf.Fleet) -> None:
    ended = threading.Event()
    fleet.kernel("saxpy").submit(1.0, X, X).add_done_callback(lambda _: ended.set())
    assert ended.wait(30)


def test_futures_are_awaited_in_any_loop(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")

    async def main() -> None:
        np.testing.assert_array_equal(await saxpy.submit(1.0, X, X), 2 * X)
        results = await asyncio.gather(*(saxpy.submit(float(a), X, X) for a in range(100)))
        for a, result in enumerate(results):
            np.testing.assert_array_equal(result, (a + 1) * X)
        with pytest.raises(gf.JobTooLarge):
            await saxpy.submit(1.0, large(17 << 20), large(17 << 20))

    with gf.Fleet(str(fleet._place.url)) as without_store:
        saxpy = without_store.kernel("saxpy")
        asyncio.run(main())
        asyncio.run(main())


def large(size: int) -> Any:
    return np.zeros(size // 4, np.float32)


def test_a_cancelled_wait_cancels_its_job(fleet: gf.Fleet) -> None:
    async def main() -> gf.Future[Any]:
        future = spinning(fleet)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0.5)
        return future

    assert asyncio.run(main()).cancelled()


def test_a_wait_has_a_timeout_that_says_why(fleet: gf.Fleet) -> None:
    future = spinning(fleet)
    with pytest.raises(gf.WaitTimeout, match=f"no result for job {future.job_id} arrived within 0.2 s"):
        future.result(timeout=0.2)
    with pytest.raises(TimeoutError, match="1 of 1 jobs had no result"):
        list(gf.as_completed([future], timeout=0.1))
    assert not future.done()
    assert future.cancel() and future.cancelled()


def test_cancel_ends_the_future_at_once_and_the_job_soon(fleet: gf.Fleet) -> None:
    future = spinning(fleet)
    assert future.cancel()
    assert future.cancelled() and future.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        future.result()
    # The workers are free again.
    np.testing.assert_array_equal(fleet.kernel("saxpy").submit(1.0, X, X).result(timeout=30), 2 * X)
    done = fleet.kernel("saxpy").submit(1.0, X, X)
    done.result()
    assert not done.cancel()


def test_an_answer_before_the_confirmation_of_the_order_ends_a_future_as_cancelled(
    fleet: gf.Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    future = spinning(fleet)
    order, ended = future._connection.cancel, threading.Event()
    future.add_done_callback(lambda _: ended.set())

    def order_and_wait(*args: Any, **options: Any) -> None:
        order(*args, **options)
        assert ended.wait(60)

    monkeypatch.setattr(future._connection, "cancel", order_and_wait)
    assert future.cancel() and future.cancelled()


def test_jobs_are_cancelled_by_label(fleet: gf.Fleet) -> None:
    futures = [spinning(fleet, labels={"run": "by-label"}) for _ in range(3)]
    fleet.cancel(labels={"run": "by-label"})
    for future in futures:
        error = future.exception(timeout=60)
        assert isinstance(error, gf.JobCancelled), error


def test_an_exception_in_the_block_cancels_what_is_open(environment: None) -> None:
    with pytest.raises(ZeroDivisionError), gf.Fleet() as fleet:
        future = spinning(fleet)
        raise ZeroDivisionError
    assert future.cancelled()


def test_leaving_the_block_waits_for_open_futures(environment: None) -> None:
    with gf.Fleet() as fleet:
        futures = [fleet.kernel("saxpy").submit(1.0, X, X) for _ in range(10)]
    assert all(future.done() for future in futures)
    with pytest.raises(gf.FleetClosed):
        fleet.kernel("saxpy").submit(1.0, X, X)


def cancel(future: gf.Future[Any]) -> None:
    """Ends a job whose fleet was closed, so that it does not occupy the worker."""
    with gf.Fleet() as fleet:
        fleet.cancel([future.job_id])


def test_a_closed_fleet_detaches(environment: None) -> None:
    fleet = gf.Fleet()
    future = fleet._submit(task(SPIN, "spin", time_limit="60s"))
    fleet.close()
    fleet.close()
    with pytest.raises(gf.FleetClosed):
        future.result()
    cancel(future)


def test_a_failed_compilation_has_its_class_and_its_log(fleet: gf.Fleet) -> None:
    code = 'extern "C" __global__ void wrong(unsigned *x, unsigned n) { x[0] = undeclared; }'
    future = fleet._submit(task(code, "wrong"))
    with pytest.raises(gf.CompileError, match=f"job {future.job_id} failed: .*undeclared") as caught:
        future.result(timeout=60)
    error = caught.value
    assert (error.code, error.verdict, error.line, error.job_id) == ("compile_error", "user", 1, future.job_id)
    (diagnostic,) = error.diagnostics
    assert (diagnostic.message, diagnostic.column) == ('identifier "undeclared" is undefined', code.index("undeclared"))
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is gf.CompileError and str(copy) == str(error) and copy.failure == error.failure


def test_a_kernel_that_faults_has_its_class(fleet: gf.Fleet) -> None:
    code = 'extern "C" __global__ void fault(unsigned *x, unsigned n) { x[n] = 1; }'
    future = fleet._submit(task(code, "fault", number=1 << 20))
    assert isinstance(future.exception(timeout=60), gf.KernelFault)


def test_a_job_that_runs_too_long_has_its_class(fleet: gf.Fleet) -> None:
    future = fleet._submit(task(SPIN, "spin", time_limit="300ms"))
    assert isinstance(future.exception(timeout=60), gf.TimeLimitReached)


def test_a_closed_fleet_ends_every_wait_for_room(environment: None) -> None:
    fleet = gf.Fleet()
    fleet._connected()._open.window._jobs_max = 1
    first = fleet._submit(task(SPIN, "spin", time_limit="60s"))
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        second = thread.submit(fleet.kernel("saxpy").submit, 1.0, X, X)
        with pytest.raises(TimeoutError):
            second.result(timeout=0.1)
        fleet.close()
        with pytest.raises(gf.FleetClosed):
            second.result(timeout=30)
    cancel(first)


def test_a_timeout_says_why_jobs_wait(fleet: gf.Fleet) -> None:
    assert fleet._connected().obstacle("default") is None
    # The broker has a second to answer. A busy one may need longer, and then nothing is known.
    reason = f"no worker serves pool {UNSERVED}"
    assert poll(lambda: fleet._connected().obstacle(UNSERVED), lambda found: found is not None, 60) == reason
    future = spinning(fleet)
    future._options = Options(pool=UNSERVED)

    def timed_out() -> str:
        with pytest.raises(gf.WaitTimeout, match="arrived within 1 s") as caught:
            future.result(timeout=1)
        return str(caught.value)

    poll(timed_out, lambda told: told.endswith(f"arrived within 1 s: {reason}"), 60)
    future.cancel()


def test_a_pool_without_workers_has_its_class(fleet: gf.Fleet) -> None:
    future = fleet.kernel("saxpy").options(pool=UNSERVED).submit(1.0, X, X)
    with pytest.raises(gf.NoQueue, match=UNSERVED):
        future.result(timeout=30)


def test_what_kernels_print_comes_back(fleet: gf.Fleet) -> None:
    code = 'extern "C" __global__ void say(unsigned *x, unsigned n) { printf("%u\\n", n); }'
    future = fleet._submit(task(code, "say", number=42))
    future.result(timeout=60)
    assert future.printed == "42\n"


def test_a_future_can_not_be_pickled(fleet: gf.Fleet) -> None:
    with pytest.raises(TypeError, match=r"send future\.job_id"):
        pickle.dumps(fleet.kernel("saxpy").submit(1.0, X, X))


def open_call(fleet: gf.Fleet) -> gf.Future[Any]:
    """The future behind a call that another thread waits for."""
    while not (open_ := fleet._connected().open_futures()):
        pass
    return open_[0]


def test_a_call_ends_when_another_thread_closes_the_fleet(environment: None) -> None:
    fleet = gf.Fleet()
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        call = thread.submit(fleet._call, task(SPIN, "spin", time_limit="60s"), dict)
        future = open_call(fleet)
        fleet.close()
        with pytest.raises(gf.FleetClosed):
            call.result(timeout=30)
    cancel(future)


def test_a_call_that_begins_while_the_fleet_closes_is_not_sent(environment: None) -> None:
    with gf.Fleet() as fleet:
        # The first step of `close`, which another thread may have taken after this call found the fleet open.
        fleet._connected()._client.close(30)
        with pytest.raises(gf.FleetClosed, match="closed"):
            fleet._call(task(SPIN, "spin"), dict)


def test_a_call_ends_when_another_thread_cancels_it(environment: None) -> None:
    with gf.Fleet() as fleet, concurrent.futures.ThreadPoolExecutor(1) as thread:
        call = thread.submit(fleet._call, task(SPIN, "spin", time_limit="60s"), dict)
        assert open_call(fleet).cancel()
        with pytest.raises(concurrent.futures.CancelledError):
            call.result(timeout=30)


def test_a_call_that_is_cancelled_before_its_job_is_sent_does_not_hold_up_close(environment: None) -> None:
    large = np.zeros(1 << 26, np.float32)
    with gf.Fleet() as fleet, concurrent.futures.ThreadPoolExecutor(1) as thread:
        # The arrays are stored first, which takes longer than the order to cancel the job.
        call = thread.submit(fleet.kernel("saxpy"), 1.0, large, large)
        assert open_call(fleet).cancel_soon()
        with pytest.raises(concurrent.futures.CancelledError):
            call.result(timeout=30)


def test_calls_between_submissions_give_all_room_back(environment: None) -> None:
    with gf.Fleet() as fleet:
        saxpy = fleet.kernel("saxpy")
        futures = []
        for a in range(100):
            futures.append(saxpy.submit(float(a), X, X))
            np.testing.assert_array_equal(saxpy(float(a), X, X), (a + 1) * X)
        for a, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(timeout=30), (a + 1) * X)
        assert not fleet._connected().open_futures()
        assert fleet._connected()._open.window._jobs == 0


def test_a_call_raises_what_its_future_would(fleet: gf.Fleet) -> None:
    with pytest.raises(gf.NoQueue, match=UNSERVED):
        fleet.kernel("saxpy").options(pool=UNSERVED)(1.0, X, X)
    code = 'extern "C" __global__ void wrong(unsigned *x, unsigned n) { x[0] = undeclared; }'
    with pytest.raises(gf.CompileError):
        fleet._call(task(code, "wrong"), dict)


def test_many_threads_share_a_fleet(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")
    with concurrent.futures.ThreadPoolExecutor(32) as threads:
        results = list(threads.map(lambda a: saxpy(float(a), X, X), range(200)))
    for a, result in enumerate(results):
        np.testing.assert_array_equal(result, (a + 1) * X)


def test_a_later_program_takes_the_results_of_an_earlier_one(environment: None) -> None:
    with gf.Fleet(client="gpufleet-nightly") as first:
        job_id = first._submit(task(SPIN, "spin", time_limit="1s")).job_id
        first.close()
    with gf.Fleet(client="gpufleet-nightly") as second:
        error = second.attach(job_id).exception(timeout=30)
        assert isinstance(error, gf.TimeLimitReached)
        done = second.kernel("saxpy").submit(1.0, X, X)
        done.result(timeout=30)
        with pytest.raises(gf.AttachError, match="was taken already"):
            second.attach(done.job_id)
        assert second.unread() == []
    with gf.Fleet() as nameless, pytest.raises(gf.AttachError, match="give this client the name"):
        nameless.attach(job_id)
