"""Sessions: a process uses the emulated device of a worker through gpufleet's driver library.

A process has one session, so each test starts processes of its own. The examples of docs/src/guides/sessions.md run
here too.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger import jobs, poll
from notebooks import run as run_notebook
from notebooks import text
from test_documentation import PAGES, Block

import gpufleet as gf
from gpufleet import _lease, _session
from gpufleet._driver import find

TESTS = Path(__file__).parent
SECONDS = 100
LEDGER_SECONDS = 30

BEGIN = """
import os, sys
import gpufleet as gf
from driver import UNAVAILABLE, Driver
LABELS = {"run": sys.argv[1]}
"""


@pytest.fixture
def run(environment: None) -> str:
    """The label of the test's sessions."""
    return uuid.uuid4().hex


def process(
    folder: Path, run: str, body: str, *, options: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program whose `LABELS` are those of the test."""
    program = folder / "train.py"
    program.write_text(BEGIN + textwrap.dedent(body))
    paths = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(TESTS)]
    return subprocess.run(
        [sys.executable, "-P", *options.split(), str(program), run],
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **variables},
    )


def succeeds(folder: Path, run: str, body: str, **variables: str) -> str:
    """Runs a program that must succeed, and returns its standard error."""
    done = process(folder, run, body, **variables)
    assert done.returncode == 0, done.stderr
    return done.stderr


def outcome(run: str) -> tuple[str, str | None]:
    """The state and the failure code of the only session with the label."""
    found = poll(lambda: [job for job in jobs(run) if job["finished_at"]], bool, LEDGER_SECONDS)
    (job,) = found
    return job["state"], job["failure"] and job["failure"]["code"]


def test_a_process_uses_the_device_of_a_worker(run: str, tmp_path: Path) -> None:
    told = succeeds(
        tmp_path,
        run,
        """
        with gf.Fleet().session("64MiB", name="first", labels=LABELS, time_limit="5m", idle_limit="1m") as gpu:
            driver = Driver()
            driver.copy()
            assert driver.memory_bytes == gpu.memory_bytes == 64 << 20
            assert gpu.emulated and "emulator" in gpu.device_name and gpu.time_limit == 300
            assert gpu.counters is None
        counters = gpu.counters
        assert counters.calls > 3 and counters.waits > 0
        assert min(counters.sent_bytes, counters.received_bytes, counters.memory_bytes_peak) >= 1 << 16
        assert driver.synchronize() == UNAVAILABLE
        assert "GPUFLEET_SESSION_SOCKET" not in os.environ and "NUMBA_CUDA_DRIVER" not in os.environ
        """,
    )
    assert "UserWarning: the GPU of this session is an EMULATED device (runs on the CPU of worker " in told
    assert ", 64 MiB for 5 min, " in told
    assert outcome(run) == ("succeeded", None)
    assert (jobs(run)[0]["name"], jobs(run)[0]["kernel"]) == ("first", f"{Path(sys.executable).name} train.py")


def test_a_block_that_raises_is_a_program_that_fails(run: str, tmp_path: Path) -> None:
    done = process(tmp_path, run, 'with gf.Fleet().session("64MiB", labels=LABELS): raise LookupError("lost")')
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == "LookupError: lost"
    assert outcome(run) == ("failed", "program_failed")


@pytest.mark.parametrize(("code", "expected"), [("0", "succeeded"), ("3", "failed"), ("'no data'", "failed")])
def test_the_exit_code_of_a_block_is_that_of_the_session(run: str, tmp_path: Path, code: str, expected: str) -> None:
    process(tmp_path, run, f'with gf.Fleet().session("64MiB", labels=LABELS): sys.exit({code})')
    assert outcome(run)[0] == expected


@pytest.mark.parametrize("name", ["libcuda.so", "libcuda.so.1"])
def test_each_search_for_a_driver_finds_that_of_the_session(run: str, tmp_path: Path, name: str) -> None:
    """A driver in LD_LIBRARY_PATH is not found, because the library has the RPATH of its folder."""
    other = tmp_path / "other"
    other.mkdir()
    for each in ("libcuda.so", "libcuda.so.1"):
        shutil.copy(find(None, os.environ), other / each)
    body = f"""
        with gf.Fleet().session("64MiB", labels=LABELS):
            Driver({name!r}).copy()
        assert {str(other)!r} not in open("/proc/self/maps").read()
    """
    succeeds(tmp_path, run, body)
    succeeds(tmp_path, run, body, LD_LIBRARY_PATH=str(other))


def test_numba_runs_unchanged(run: str, tmp_path: Path) -> None:
    succeeds(
        tmp_path,
        run,
        """
        import numpy as np
        with gf.Fleet().session("64MiB", labels=LABELS) as gpu:
            from numba import cuda
            @cuda.jit
            def scale(values, factor):
                i = cuda.grid(1)
                if i < values.size:
                    values[i] *= factor
            values = cuda.to_device(np.arange(1000.0))
            scale[4, 256](values, 3.0)
            np.testing.assert_array_equal(values.copy_to_host(), 3 * np.arange(1000.0))
        assert gpu.counters.busy_us > 0
        """,
    )
    assert outcome(run) == ("succeeded", None)


def test_numba_that_was_imported_before_is_warned_of(run: str, tmp_path: Path) -> None:
    told = succeeds(tmp_path, run, 'from numba import cuda\nwith gf.Fleet().session("64MiB", labels=LABELS): pass')
    assert "UserWarning: numba.cuda was imported before the session" in told


def test_a_second_session_is_refused(run: str, tmp_path: Path) -> None:
    told = succeeds(
        tmp_path,
        run,
        """
        fleet = gf.Fleet()
        def again(session):
            try:
                session.open()
            except RuntimeError as problem:
                assert "has had a session" in str(problem) and "start the program again" in str(problem)
            else:
                raise AssertionError
        with fleet.session("64MiB", labels=LABELS) as gpu:
            again(fleet.session("64MiB", labels=LABELS))
            Driver().copy()
        again(fleet.session("64MiB", labels=LABELS))
        again(gpu)
        """,
    )
    assert told.count("EMULATED") == 1
    assert len(jobs(run)) == 1


def test_a_process_with_another_driver_is_refused(run: str, tmp_path: Path) -> None:
    other = tmp_path / "libcuda.so.550.54"
    shutil.copy(find(None, os.environ), other)
    body = f"import ctypes; ctypes.CDLL({str(other)!r}); gf.Fleet().session('64MiB', labels=LABELS).open()"
    assert f"has loaded another CUDA driver, {other}; open the session in a new process" in raised(tmp_path, run, body)
    assert jobs(run) == []


def test_a_program_of_gpufleet_run_is_refused(run: str, tmp_path: Path) -> None:
    body = "gf.Fleet().session('64MiB', labels=LABELS).open()"
    assert "was started by `gpufleet run`" in raised(tmp_path, run, body, GPUFLEET_SESSION_SOCKET="/nonexistent")


def raised(folder: Path, run: str, body: str, **variables: str) -> str:
    """Returns the last line of a program that fails."""
    done = process(folder, run, body, **variables)
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()[-1]


def test_after_a_refusal_another_pool_may_have_a_session(run: str, tmp_path: Path) -> None:
    succeeds(
        tmp_path,
        run,
        """
        fleet = gf.Fleet()
        try:
            fleet.session("64MiB", labels=LABELS, pool="nobody").open()
        except gf.NoQueue as problem:
            assert str(problem) == "pool nobody takes no sessions: none of its workers has sessions=1 or more"
        with fleet.session("64MiB", labels=LABELS):
            Driver().copy()
        """,
    )
    assert outcome(run) == ("succeeded", None)


def test_a_session_that_no_worker_can_give_fails(run: str, tmp_path: Path) -> None:
    told = raised(tmp_path, run, "gf.Fleet().session('900TiB', labels=LABELS).open()")
    assert told.startswith("gpufleet._errors.OutOfMemory: job ") and "session-memory=" in told


def test_wrong_arguments_are_refused(fleet: gf.Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for memory in ("8GB", "0GiB", "", -1):
        with pytest.raises(ValueError, match="is not a size; write a whole number with a unit"):
            fleet.session(memory)
    with pytest.raises(FileNotFoundError, match=r"there\.so does not exist; correct the argument library"):
        fleet.session("1GiB", library=tmp_path / "there.so")
    with pytest.raises(RuntimeError, match="was not opened"):
        _ = fleet.session("1GiB").job_id


def test_without_a_library_the_error_names_the_places(
    fleet: gf.Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("gpufleet._driver._FILE", "libmissing.so")
    command = tmp_path / "bin/gpufleet"
    command.parent.mkdir()
    command.touch(0o755)
    monkeypatch.setenv("PATH", str(command.parent))
    with pytest.raises(FileNotFoundError) as raised:
        fleet.session("1GiB")
    for place in (
        Path(gf.__file__).parent / "lib",
        tmp_path / "bin",
        tmp_path / "lib/gpufleet",
        Path("/usr/lib/gpufleet"),
    ):
        assert f"no {place}/libmissing.so" in str(raised.value)
    library = tmp_path / "lib/gpufleet/libmissing.so"
    library.parent.mkdir(parents=True)
    library.touch()
    assert find(None, {}) == str(library)


def test_a_limit_ends_the_session_and_the_block_raises_it(run: str, tmp_path: Path) -> None:
    told = succeeds(
        tmp_path,
        run,
        """
        try:
            with gf.Fleet().session("64MiB", labels=LABELS, time_limit="1s") as gpu:
                driver = Driver()
                while driver.synchronize() != UNAVAILABLE:
                    pass
        except gf.TimeLimitReached as problem:
            assert problem.job_id == gpu.job_id and "start the program again" in problem.__notes__[0]
        else:
            raise AssertionError
        assert gpu.counters.calls > 3
        """,
    )
    assert "gpufleet: the session has ended" in told
    assert outcome(run) == ("failed", "time_limit")


def test_an_exception_of_the_block_is_kept_and_says_that_the_session_ended(run: str, tmp_path: Path) -> None:
    done = process(
        tmp_path,
        run,
        """
        with gf.Fleet() as fleet, fleet.session("64MiB", labels=LABELS) as gpu:
            driver = Driver()
            fleet.cancel([gpu.job_id])
            while driver.synchronize() != UNAVAILABLE:
                pass
            raise LookupError("lost")
        """,
    )
    *_, error, note = done.stderr.splitlines()
    assert error == "LookupError: lost" and "cancelled" in note
    assert outcome(run) == ("cancelled", "cancelled")


def test_the_end_of_the_program_ends_the_session(run: str, tmp_path: Path) -> None:
    succeeds(tmp_path, run, 'gpu = gf.Fleet().session("64MiB", labels=LABELS).open(); Driver().copy()')
    assert outcome(run) == ("succeeded", None)


def test_a_program_that_is_killed_is_lost(run: str, tmp_path: Path) -> None:
    body = 'gpu = gf.Fleet().session("64MiB", labels=LABELS).open(); os.kill(os.getpid(), 9)'
    assert process(tmp_path, run, body).returncode == -signal.SIGKILL
    assert outcome(run) == ("failed", "client_lost")


def test_warnings_that_are_errors_end_the_session(run: str, tmp_path: Path) -> None:
    done = process(tmp_path, run, 'with gf.Fleet().session("64MiB", labels=LABELS): pass', options="-W error")
    assert done.returncode == 1 and "EMULATED" in done.stderr.splitlines()[-1]
    assert outcome(run) == ("failed", "program_failed")


def test_children_do_not_take_the_session(run: str, tmp_path: Path) -> None:
    """A forked child refuses another session and leaves that of its parent open; others may have their own."""
    own = "import gpufleet as gf, driver; s = gf.Fleet().session('64MiB').open(); driver.Driver().copy(); s.close()"
    succeeds(
        tmp_path,
        run,
        f"""
        import subprocess
        with gf.Fleet().session("64MiB", labels=LABELS) as gpu:
            child = os.fork()
            if child == 0:
                try:
                    gf.Fleet().session("64MiB", labels=LABELS).open()
                except RuntimeError:
                    sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            subprocess.run([sys.executable, "-P", "-c", {own!r}], check=True)
            Driver().copy()
        """,
    )
    assert outcome(run) == ("succeeded", None)


ASYNC = """
import asyncio
async def main():
    async with gf.Fleet().session("64MiB", labels=LABELS) as gpu:
        Driver().copy()
    return gpu.counters.calls
assert asyncio.run(main()) > 3
"""


def test_a_session_opens_and_ends_in_asyncio(run: str, tmp_path: Path) -> None:
    assert succeeds(tmp_path, run, ASYNC).count("EMULATED") == 1
    assert outcome(run) == ("succeeded", None)


@pytest.fixture
def taken(fleet: gf.Fleet) -> Iterator[None]:
    """Both workers have given all of their memory for sessions. The leases do not make the device that of this
    process.
    """
    leases = [held(fleet) for _ in range(2)]
    yield
    assert [lease.end(0) is not None for lease in leases] == [True, True]


def held(fleet: gf.Fleet) -> _lease.Lease:
    session = _session.session_of(fleet, "900MiB", idle_limit=None, library=None, labels=None, requires=None)
    return session._request()


def test_a_wait_that_is_cancelled_cancels_the_job(run: str, tmp_path: Path, taken: None) -> None:
    told = succeeds(
        tmp_path,
        run,
        """
        import asyncio
        async def main():
            async with asyncio.timeout(2), gf.Fleet().session("900MiB", labels=LABELS):
                raise AssertionError
        try:
            asyncio.run(main())
        except TimeoutError:
            pass
        """,
    )
    assert 'gpufleet: waiting in pool default; "gpufleet why ' in told
    assert outcome(run) == ("cancelled", "cancelled")


def test_a_wait_ends_at_the_queue_limit(run: str, tmp_path: Path, taken: None) -> None:
    body = "gf.Fleet().session('900MiB', labels=LABELS, queue_limit='1s').open()"
    assert raised(tmp_path, run, body).startswith("gpufleet._errors.QueueLimitReached: job ")
    assert outcome(run)[1] == "queue_limit"


def test_a_notebook_has_a_session_until_its_kernel_ends(run: str, tmp_path: Path) -> None:
    outputs = run_notebook(
        f"%load_ext gpufleet\nimport sys; sys.path.append({str(TESTS)!r}); from driver import Driver",
        "%gpu_session --memory 64MiB --time-limit 5m --name " + run,
        "Driver().copy()",
        "%gpu_session --memory 64MiB",
        "%gpu_session --memory 64MB",
        "%gpu_session",
        folder=tmp_path,
        fails=True,
    )
    _, opened, copied, again, wrong, empty = map(text, outputs)
    assert opened.startswith("EMULATED device (runs on the CPU of worker ") and ", 64 MiB for 5 min, " in opened
    assert copied == ""
    assert again.startswith("UsageError: this process has had a session") and "restart the notebook's kernel" in again
    assert wrong.startswith("UsageError: '64MB' is not a size")
    assert empty.startswith("UsageError: the following arguments are required: --memory; %gpu_session? shows")
    assert poll(lambda: states_of(run), bool, LEDGER_SECONDS) == ["succeeded"]


def states_of(name: str) -> list[str]:
    with gf.Fleet() as fleet:
        return [job["state"] for job in fleet.history() if job["name"] == name and job["finished_at"]]


def test_after_the_idle_limit_a_cell_that_fails_says_what_to_do(environment: None, tmp_path: Path) -> None:
    wait = """
    import time
    from gpufleet._session import _owner
    while _owner["session"]._ended is None:
        time.sleep(0.05)
    """
    outputs = run_notebook(
        f"%load_ext gpufleet\nimport sys; sys.path.append({str(TESTS)!r}); from driver import Driver",
        "%gpu_session --memory 64MiB --idle-limit 2s\ndriver = Driver()",
        textwrap.dedent(wait),
        "driver.copy()",
        folder=tmp_path,
        fails=True,
    )
    failing = outputs[-1]
    assert "the driver returned 46" in text(failing), [text(output) for output in outputs]
    assert "the session has ended: " in text(failing) and "Restart the notebook's kernel" in text(failing)


PAGE = PAGES["guides/sessions.md"]


@pytest.mark.parametrize("block", [block for block in PAGE if ".session(" in block.text], ids=lambda _: "")
def test_the_examples_of_docs_src_guides_sessions_run(block: Block, run: str, tmp_path: Path) -> None:
    succeeds(tmp_path, run, block.text)
