"""Processes: forks before and after connecting, interrupts, and the end of the interpreter."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpufleet as gf
from gpufleet.notebook import gpu

X = np.arange(4, dtype=np.float32)
CHILD_SECONDS = 60


def in_child(act: Callable[[], None]) -> int:
    """Forks, acts in the child, and returns its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + CHILD_SECONDS
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")


def test_the_options_of_a_scope_are_those_of_a_child_too(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")

    def act() -> None:
        with gpu(time_limit=30):
            job = saxpy.submit(1.0, X, X)
        assert (job._options.labels, job._options.time_limit, job.done()) == ({"run": "7"}, 30, True)
        fleet.close()

    with gpu(labels={"run": "7"}) as meter:
        saxpy(1.0, X, X)
        assert in_child(act) == 0
    assert meter.jobs == 1


def test_a_child_connects_anew_and_the_parent_goes_on(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")
    name = fleet._connected().client_name

    def act() -> None:
        np.testing.assert_array_equal(saxpy(1.0, X, X), 2 * X)
        assert fleet._connected().client_name != name
        fleet.close()

    for _ in range(5):
        before = saxpy.submit(1.0, X, X)
        assert in_child(act) == 0
        np.testing.assert_array_equal(before.result(timeout=30), 2 * X)
        np.testing.assert_array_equal(saxpy(2.0, X, X), 3 * X)
    assert fleet._connected().client_name == name


def test_inherited_futures_raise_and_finished_ones_do_not(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")
    finished = saxpy.submit(1.0, X, X)
    finished.result()
    unfinished = saxpy.options(time_limit=30).submit(1.0, X, X)

    def act() -> None:
        np.testing.assert_array_equal(finished.result(), 2 * X)
        if not unfinished.done():
            for use in (unfinished.result, unfinished.cancel, lambda: list(gf.as_completed([unfinished]))):
                with pytest.raises(gf.ForkedError, match=unfinished.job_id):
                    use()

    assert in_child(act) == 0
    np.testing.assert_array_equal(unfinished.result(timeout=30), 2 * X)


def test_a_child_leaves_by_itself_without_closing(fleet: gf.Fleet) -> None:
    def act() -> None:
        gf.Fleet().kernel("saxpy").submit(1.0, X, X).result()
        sys.stdout.flush()

    assert in_child(act) == 0


def work(fleet: gf.Fleet, index: int) -> Any:
    return fleet.kernel("saxpy")(float(index), X, X)


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_every_start_method_works(fleet: gf.Fleet, method: str) -> None:
    with multiprocessing.get_context(method).Pool(2) as pool:
        results = pool.starmap(work, [(fleet, index) for index in range(4)])
    for index, result in enumerate(results):
        np.testing.assert_array_equal(result, (index + 1) * X)
    np.testing.assert_array_equal(fleet.kernel("saxpy")(1.0, X, X), 2 * X)


def run(code: str, *, interrupt_after: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a program, and interrupts it once it has printed a line."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    if interrupt_after is not None:
        assert process.stdout.readline().strip() == interrupt_after
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=CHILD_SECONDS)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_ctrl_c_ends_a_wait_at_once(environment: None) -> None:
    ended = run(
        """
        import signal, time, gpufleet as gf
        from gpufleet._task import *
        # A shell starts background processes with this signal ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = 'extern "C" __global__ void spin(unsigned *x) { for (;;) x[0] += 1; }'
        task = Task(Source(code), {"x": Zeros((1,), "u32")}, (Launch("spin", (1,), (1,), (Pointer("x"),)),), ("x",),
                    Options(time_limit=60))
        with gf.Fleet() as fleet:
            future = fleet._submit(task)
            begun = time.monotonic()
            try:
                print("waiting", flush=True)
                future.result(timeout=60)
            except KeyboardInterrupt:
                print("interrupted", time.monotonic() - begun < 2, future.done(), flush=True)
                future.cancel()
                raise
        """,
        interrupt_after="waiting",
    )
    assert ended.stdout.strip() == "interrupted True False"
    assert "KeyboardInterrupt" in ended.stderr


def test_a_program_may_end_without_closing(environment: None) -> None:
    ended = run(
        """
        import gpufleet as gf, numpy as np
        fleet = gf.Fleet()
        x = np.ones(4, np.float32)
        print(fleet.kernel("saxpy")(1.0, x, x))
        future = fleet.kernel("saxpy").submit(1.0, x, x)
        """
    )
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "[2. 2. 2. 2.]", "")
