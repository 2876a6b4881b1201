"""The progress of running jobs: futures, callbacks and counters, on the emulated device."""

from __future__ import annotations

import asyncio
import doctest
import logging
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import paced
import pytest
from broker import add_user
from fake_fleet import FakeFleet
from ledger import poll

import gpufleet as gf
from gpufleet import Count, Progress, ProgressCounter, _logged, _progress
from gpufleet._binding import ArgumentError
from gpufleet._logged import logged_result
from gpufleet._plan import plan
from gpufleet._printed import Transcript
from gpufleet._progress import Course
from gpufleet._raw import RawKernel
from gpufleet._task import Ref
from gpufleet.testing import LocalFleet

X = np.arange(4, dtype=np.float32)
SECONDS = 60.0


@pytest.fixture
def fleet(undisturbed: LocalFleet) -> Iterator[gf.Fleet]:
    with gf.Fleet() as fleet:
        yield fleet


def update(sequence: int, at: float, stage: str = "running", **parts: Any) -> Any:
    """A message of a job that started at the second 100."""
    found = {"attempt": 1, "started": 100.0, "launches": None, "counter": None, "moved": None, "printed": None} | parts
    times = (int(at * 1000), int(found["started"] * 1000))
    return (
        "7",
        found["attempt"],
        sequence,
        *times,
        stage,
        found["launches"],
        found["counter"],
        found["moved"],
        found["printed"],
    )


def test_a_long_job_says_how_far_it_is(fleet: gf.Fleet) -> None:
    seen: list[Progress] = []
    threads = set[str]()
    future = paced.submit(fleet)
    future.add_progress_callback(seen.append)
    future.add_progress_callback(lambda _: threads.add(threading.current_thread().name))
    assert future.progress is None
    assert future.result(timeout=SECONDS).tolist() == [20]
    assert 2 <= len(seen) <= 5 and future.progress == seen[-1], "the last progress stays"
    assert {(each.job_id, each.attempt, each.stage) for each in seen} == {(future.job_id, 1, "running")}
    for before, after in pairwise(seen):
        assert before.counter is not None and after.counter is not None
        assert before.counter.done <= after.counter.done <= after.counter.total == 20
        assert 0.9 < after.elapsed - before.elapsed < 3
    last = seen[-1]
    assert last.counter is not None and last.fraction == last.counter.done / 20 > 0.2
    assert last.remaining is not None and 0 <= last.remaining < 20
    assert str(last).startswith(f"kernels {last.counter.done}/20 steps · {int(last.elapsed)} s · about ")
    printed = "".join(each.printed for each in seen)
    assert printed.startswith("step 1\nstep 2\n") and (future.printed or "").startswith(printed)
    assert threads == {"gpufleet-futures"}


def test_jobs_cost_nothing_until_something_asks(fleet: gf.Fleet) -> None:
    connection = fleet._connected()
    fleet.kernel("saxpy")(1.0, X, X)
    assert not connection._followed and connection._open._by_id is None
    other = paced.submit(fleet)
    short = fleet.kernel("saxpy").submit(1.0, X, X)
    assert short.progress is None and set(connection._followed) == {"default"}
    assert short.result(timeout=SECONDS) is not None and short.progress is None
    poll(lambda: other._course and other._course.latest, lambda found: found is not None, SECONDS)
    other.result()
    assert connection._open._by_id == {}, "jobs that have ended are forgotten"
    assert other.progress is not None


def test_a_future_of_the_parent_asks_for_nothing_in_a_fork(fleet: gf.Fleet) -> None:
    future = fleet.kernel("saxpy").submit(1.0, X, X)
    connection = future._connection
    connection._pid = -1
    assert future.progress is None and not connection._followed
    connection._pid = connection._client.pid


def test_an_exception_of_a_callback_is_logged_and_breaks_nothing(
    fleet: gf.Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Progress] = []

    def wrong(progress: Progress) -> None:
        raise ValueError(f"wrong {progress.attempt}")

    future = paced.submit(fleet, 2, on_progress=wrong)
    future.add_progress_callback(seen.append)
    future.result(timeout=SECONDS)
    assert seen
    record = next(record for record in caplog.records if record.name == "gpufleet")
    assert future.job_id in record.message and "ValueError: wrong 1" in caplog.text


def test_an_option_names_a_callback_for_many_jobs(fleet: gf.Fleet) -> None:
    seen: list[Progress] = []
    kernel = fleet.RawKernel(paced.PACED, "paced").options(on_progress=seen.append)
    args = [(gf.zeros(1, "uint32"), ProgressCounter(10), 10) for _ in range(2)]
    assert [result.tolist() for result in kernel.map(1, 1, args)] == [[10], [10]]
    assert len({progress.job_id for progress in seen}) == 2
    with pytest.raises(TypeError, match=r"on_progress is a function that takes a gpufleet.Progress, not 3"):
        kernel.options(on_progress=3)


def test_a_loop_of_asyncio_iterates_over_progress(fleet: gf.Fleet) -> None:
    async def main() -> None:
        future = paced.submit(fleet)
        seen = [progress async for progress in future.updates()]
        assert len(seen) >= 2 and seen[-1] == future.progress
        assert (await future).tolist() == [20]
        assert [progress async for progress in future.updates()] == []

    asyncio.run(main())


def test_a_job_that_needs_others_passes_its_progress_on(fleet: gf.Fleet) -> None:
    seen: list[Progress] = []
    first = fleet.kernel("saxpy").submit(1.0, X, X)
    code = paced.PACED.replace("unsigned *y, ", "unsigned *y, const float *x, ")
    steps = (gf.zeros(1, "uint32"), first, ProgressCounter(15), 15)
    future = fleet.RawKernel(code, "paced").submit(1, 1, steps)
    future.add_progress_callback(seen.append)
    assert future.result(timeout=SECONDS).tolist() == [15]
    assert seen and seen[-1].job_id == future.job_id and future.progress == seen[-1]


def test_a_job_of_an_earlier_program_has_progress(undisturbed: LocalFleet) -> None:
    with gf.Fleet(client="gpufleet-progress") as fleet:
        kernel = fleet.RawKernel(paced.PACED, "paced")
        future = fleet.attach(kernel.detach(1, 1, (gf.zeros(1, "uint32"), ProgressCounter(15), 15)), pool="default")
        seen: list[Progress] = []
        future.add_progress_callback(seen.append)
        future.result(timeout=SECONDS)
        assert seen


def test_any_client_may_ask_for_one_job(fleet: gf.Fleet) -> None:
    future = paced.submit(fleet)
    with gf.Fleet() as other:
        found = poll(
            lambda: other._connected().next_progress(future.job_id, None, 1.5), lambda each: each is not None, SECONDS
        )
        assert found is not None and found[0] == future.job_id
    future.result()


def test_without_the_permission_a_warning_says_what_to_do(
    undisturbed: LocalFleet, fleet: gf.Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    url = add_user(undisturbed.folder, str(fleet._place.url), "confined", r"^(?!gpufleet\\.v1\\.progress).*$")
    with gf.Fleet(url) as confined:
        future = paced.submit(confined, 2)
        assert future.progress is None
        assert future.result(timeout=SECONDS).tolist() == [10] and future.progress is None
        paced.submit(confined, 2).add_progress_callback(print)
        with pytest.raises(gf.GpufleetError, match="gpufleet permissions"):
            confined._connected().next_progress(future.job_id, None, 1.5)
    (warning,) = [record for record in caplog.records if record.name == "gpufleet"]
    assert warning.levelno == logging.WARNING
    assert "futures of this fleet have no progress" in warning.message and "gpufleet permissions" in warning.message


def test_a_log_says_how_far_a_job_is_or_why_it_waits(fleet: gf.Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_logged, "LOG_SECONDS", 0.4)
    lines: list[str] = []

    def log(form: str, line: str) -> None:
        lines.append(form % line)

    future = paced.submit(fleet)
    with pytest.raises(gf.WaitTimeout):
        logged_result(future, log, 0.1)
    assert not lines
    assert logged_result(future, log).tolist() == [20]
    assert lines[0] == f"no result for job {future.job_id} arrived within 0.4 s", "it has not run for a second"
    assert lines[-1].startswith(f"job {future.job_id}: kernels ") and "/20 steps · " in lines[-1]


@pytest.mark.parametrize("module", [_progress, _logged])
def test_the_examples_of_the_docstrings_run(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


def test_an_estimate_counts_from_the_beginning_of_the_stage() -> None:
    course = Course()
    fetching = course.take(update(0, 101, "fetching", moved=(1 << 30, 4 << 30)))
    assert fetching is not None and str(fetching) == "fetching inputs 1.0/4.0 GiB · 1 s · about 3 s left"
    course.take(update(1, 140, "fetching", moved=(4 << 30, 4 << 30)))
    running = course.take(update(2, 150, launches=(1, 4)))
    assert running is not None and (running.elapsed, running.remaining) == (50.0, 30.0)
    assert (running.count, running.fraction) == ((1, 4), 0.25)
    assert course.take(update(2, 151, launches=(2, 4))) is None, "it is not new"
    storing = course.take(update(5, 160, "storing", launches=(4, 4)))
    assert storing is not None and (storing.count, storing.remaining) == (None, None)
    again = course.take(update(0, 201, attempt=2, started=200.0, launches=(0, 4), counter=(3, 30)))
    assert again is not None and str(again) == "attempt 2: kernels 3/30 steps · 1 s · about 9 s left"
    assert course.take(update(9, 170, launches=(4, 4))) is None, "it is of the attempt before"


def test_a_single_launch_without_a_counter_has_no_bar() -> None:
    progress = Course().take(update(0, 141.7, launches=(0, 1)))
    assert progress is not None and progress.launches == Count(0, 1)
    assert (progress.count, progress.fraction, progress.remaining) == (None, None, None)
    assert str(progress) == "kernels · 41 s"


def test_printed_text_is_shown_once_and_in_order() -> None:
    text = Transcript()
    run = (1, 100)
    text.add(run, 0, "one\ntw", is_next=True)
    assert (text.unseen(), text.unseen()) == ("one\n", "")
    # Bytes that are no text take one character each, or one for several.
    text.add(run, 6, "o\nthr\ufffd\n", is_next=True)
    text.add(run, 13, "four\n", is_next=False)
    assert text.unseen() == "two\nthr\ufffd\nfour\n"
    text.add(run, 99, "after a lost message\n", is_next=False)
    assert text.unseen() == ""
    assert text.rest("one\ntwo\nthr\ufffd\nfour\nfive\n") == "five\n"
    assert text.rest("one\ntwo\nthr\ufffd\nfour\nfive\n") == "", "it is shown once"
    again = Transcript()
    again.add(run, 0, "one\n", is_next=True)
    again.unseen()
    again.add((2, 200), 0, "uno\n", is_next=True)
    assert again.unseen() == "uno\n", "another attempt prints anew"
    assert again.rest("eins\n") == "eins\n", "the outcome is of a third one"


def test_a_counter_needs_a_total() -> None:
    assert ProgressCounter(np.int64(7)).total == 7  # type: ignore[arg-type]
    for total in (0, -1, 1 << 64):
        with pytest.raises(ValueError, match=r"is between 1 and 2\*\*64 - 1, not"):
            ProgressCounter(total)
    for wrong in (2.5, "7", None):
        with pytest.raises(TypeError, match="is a number of steps, not"):
            ProgressCounter(wrong)  # type: ignore[arg-type]


def kernel(parameters: str, fleet: FakeFleet | None = None) -> RawKernel:
    return RawKernel(fleet or FakeFleet(), f'extern "C" __global__ void k({parameters}) {{}}', "k")


def test_a_counter_is_the_argument_of_a_pointer_to_64_bits() -> None:
    fleet = FakeFleet()
    counter = ProgressCounter(9)
    for parameter in ("unsigned long long *steps", "long long *steps", "unsigned long *steps", "void *steps"):
        kernel(parameter, fleet).submit(1, 1, (counter,))
        assert fleet.task.launches[0].args == (counter,) and not fleet.task.outputs and not fleet.task.buffers
    for parameter in ("unsigned *steps", "const unsigned long long *steps", "float *steps", "ulonglong2 *steps"):
        with pytest.raises(ArgumentError, match=r"can not be a progress counter; declare .* as unsigned long long \*"):
            kernel(parameter).submit(1, 1, (counter,))
    with pytest.raises(ArgumentError, match="takes a number, but got ProgressCounter"):
        kernel("unsigned long long steps").submit(1, 1, (counter,))
    fleet.ptx(".visible .entry k(.param .u64 steps) {}", "k", outputs=()).submit(1, 1, (counter,))
    assert fleet.task.launches[0].args == (counter,)


def test_numbas_kernels_take_a_counter(fleet: gf.Fleet) -> None:
    from numba import cuda, types  # noqa: PLC0415

    def count(counter: Any, total: Any) -> None:
        for _ in range(3):
            cuda.atomic.add(counter, 0, 1)
        total[0] = counter[0]

    kernel = fleet.numba(count, f"{types.uint64}[::1], uint64[::1]", outputs=[1])
    assert kernel.submit(1, 2, (ProgressCounter(6), gf.zeros(1, "uint64"))).result(timeout=SECONDS).size == 1
    with pytest.raises(ArgumentError, match=r"declare it as uint64\[::1\]"):
        fleet.numba(count, "f4[::1], uint64[::1]").submit(1, 1, (ProgressCounter(6), gf.zeros(1, "uint64")))


def test_two_totals_in_one_job_are_refused(fleet: gf.Fleet) -> None:
    pair = fleet.RawKernel(
        'extern "C" __global__ void pair(unsigned long long *a, unsigned long long *b) { atomicAdd(a, *b); }', "pair"
    )
    with pytest.raises(gf.InvalidJob, match="progress totals 3 and 4; a job has one counter"):
        pair.submit(1, 1, (ProgressCounter(3), ProgressCounter(4)))


def test_tasks_with_counters_are_not_one_job() -> None:
    module = FakeFleet().RawModule(
        code='extern "C" __global__ void a(float *x, unsigned long long *n) {}'
        'extern "C" __global__ void b(float *x, unsigned long long *n) {}'
    )
    a, b = module.get_function("a"), module.get_function("b")

    def stages(*counters: ProgressCounter | None) -> int:
        first = a.lazy(1, 1, (X, counters[0]))
        second = b.lazy(1, 1, (first, counters[1]))
        assert isinstance(second.ref, Ref)
        return len(plan([second.ref.key]).stages)

    assert stages(ProgressCounter(3), None) == 1
    assert stages(ProgressCounter(3), ProgressCounter(3)) == 2


def test_a_bar_follows_the_fraction(fleet: gf.Fleet) -> None:
    """A bar of tqdm has `total`, `n` and `refresh`."""

    class Bar:
        total: float
        n = 0.0
        drawn: list[float] = []  # noqa: RUF012

        def refresh(self) -> None:
            self.drawn.append(self.n)

    bar = Bar()

    def draw(progress: Progress) -> None:
        if progress.count is not None:
            bar.n, bar.total = progress.count
            bar.refresh()

    begin = time.monotonic()
    paced.submit(fleet, on_progress=draw).result(timeout=SECONDS)
    assert bar.drawn == sorted(bar.drawn) and bar.total == 20
    assert len(bar.drawn) <= time.monotonic() - begin + 1
