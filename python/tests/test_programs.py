"""Host programs: commands that run on the machine of a worker, with a whole device."""

from __future__ import annotations

import asyncio
import concurrent.futures
import pickle
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from ledger import jobs, poll
from programs import PLAIN

import gpufleet as gf
from gpufleet.notebook import gpu
from gpufleet.notebook._view import view_of

SECONDS = 100
SHOWN_SECONDS = 1.0
"""The time in which a printed line arrives."""
TRAIN = """
import os, pathlib
print("seed", os.environ["SEED"], pathlib.Path("data/x.txt").read_text())
pathlib.Path("out").mkdir()
pathlib.Path("out/model.txt").write_text("weights")
"""


class Runner:
    """Submits programs to the pool of the tests."""

    def __init__(self, fleet: gf.Fleet, pool: str) -> None:
        self.fleet = fleet
        self.pool = pool

    def submit(self, *command: str, **options: Any) -> gf.ProgramFuture:
        return self.fleet.submit_program(command, pool=self.pool, **{"env": PLAIN, **options})

    def shell(self, script: str, **options: Any) -> gf.ProgramFuture:
        return self.submit("sh", "-c", script, **options)

    def fails(self, script: str, **options: Any) -> gf.JobFailed:
        error = self.shell(script, **options).exception(SECONDS)
        assert isinstance(error, gf.JobFailed), error
        return error


@pytest.fixture
def runner(fleet: gf.Fleet, programs: str) -> Runner:
    return Runner(fleet, programs)


def test_a_program_gets_files_and_brings_files_back(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data/x.txt").write_text("here")
    Path("train.py").write_text(TRAIN)
    future = runner.submit(
        "python3", "train.py", variables={"SEED": "7"}, upload=["train.py", Path("data")], download="out/**"
    )
    result = future.result(SECONDS)
    assert (result.exit_code, result.output, result.log()) == (0, "seed 7 here\n", "seed 7 here\n")
    assert result.job_id == future.job_id and future.printed == result.output
    assert future.ran_on and future.ran_on.emulated
    assert result.files.extract("back") == [Path("back/out/model.txt")]
    assert Path("back/out/model.txt").read_text() == "weights"
    assert result.files.extract("back") == [Path("back/out/model.txt")], "the file is there with the same contents"
    Path("back/out/model.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="replace=True"):
        result.files.extract("back")
    result.files.extract("back", replace=True)
    assert Path("back/out/model.txt").read_text() == "weights"


def test_large_files_and_a_long_output_come_from_the_blob_store(runner: Runner, tmp_path: Path) -> None:
    data = bytes(range(256)) * 8192
    (tmp_path / "data.bin").write_bytes(data)
    result = runner.shell(
        "seq 1 20000; cat data.bin data.bin > twice.bin", upload=tmp_path / "data.bin", download="twice.bin"
    ).result(SECONDS)
    assert result.files.extract(tmp_path / "back") == [tmp_path / "back/twice.bin"]
    assert (tmp_path / "back/twice.bin").read_bytes() == data + data
    lines = [str(number) for number in range(1, 20001)]
    assert result.log().splitlines() == lines
    assert len(result.output) == 64 << 10 and result.output.splitlines()[1:] == lines[-result.output.count("\n") + 1 :]


def test_a_program_without_downloads_has_no_files(runner: Runner, tmp_path: Path) -> None:
    result = runner.shell("true").result(SECONDS)
    assert not result.files and result.files.extract(tmp_path) == [] and result.output == ""


@pytest.mark.parametrize(("end", "code"), [("exit 7", 7), ("kill -KILL $$", 137)])
def test_a_program_that_fails_raises_its_exit_code_output_and_files(
    runner: Runner, tmp_path: Path, end: str, code: int
) -> None:
    error = runner.fails(f"seq 1 30; echo partial > out.txt; {end}", download="*.txt")
    assert isinstance(error, gf.ProgramFailed) and error.program is not None
    assert error.program.exit_code == code and str(code if code < 128 else 9) in str(error)
    assert error.program.output.splitlines() == [str(number) for number in range(1, 31)]
    assert error.program.files.extract(tmp_path) == [tmp_path / "out.txt"]
    (note,) = error.__notes__
    assert note.splitlines()[:3] == [
        "the end of its output:",
        "  (10 lines before are in `program.output` of the exception)",
        "  11",
    ]
    copy = pickle.loads(pickle.dumps(error))
    assert copy.program.exit_code == code and copy.program.output == error.program.output


def test_a_program_that_the_fleet_ends_has_no_exit_code(runner: Runner) -> None:
    error = runner.fails("echo begun; sleep 1000", time_limit="2s")
    assert isinstance(error, gf.TimeLimitReached) and error.program is not None
    assert (error.program.exit_code, error.program.output) == (None, "begun\n")


def test_printed_lines_arrive_within_a_second(runner: Runner) -> None:
    came: list[tuple[float, str]] = []
    done = "import time\nfor _ in range(5):\n    print(time.time(), flush=True)\n    time.sleep(0.3)"
    future = runner.submit(
        "python3", "-c", done, on_progress=lambda progress: came.append((time.time(), progress.printed))
    )
    result = future.result(SECONDS)
    pieces = [(at, line) for at, text in came for line in text.splitlines()]
    assert "".join(text for _, text in came) == result.output and len(pieces) == 5
    assert all(at - float(line) < SHOWN_SECONDS for at, line in pieces), pieces
    assert future.progress is not None and future.progress.stage == "running"


def test_cancelling_a_future_ends_its_program(runner: Runner, request: pytest.FixtureRequest) -> None:
    run = request.node.name
    future = runner.shell("echo begun; sleep 1000", labels={"run": run})
    poll(lambda: future.progress is not None, bool, SECONDS)
    assert future.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        future.result(SECONDS)
    poll(lambda: [job["state"] for job in jobs(run)], lambda found: found == ["cancelled"], SECONDS)


def test_a_program_belongs_to_its_batch(runner: Runner) -> None:
    with runner.fleet.batch(labels={"study": "3"}, priority="low", time_limit="1ms") as batch:
        future = runner.shell("echo $GPUFLEET_ON_WORKER")
    assert batch.futures == (future,) and future.result(SECONDS).output == "1\n"
    assert future._options.labels["study"] == "3" and future._options.priority is None


def test_a_scope_gives_a_program_its_labels_and_counts_its_time(
    runner: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    with gpu(labels={"run": "7"}, priority="high", time_limit="1ms") as used:
        future = runner.shell("sleep 0.2")
    assert future._options.labels == {"run": "7"} and future.result(SECONDS).exit_code == 0
    assert 0.2 < used.kernel_seconds < SECONDS and "1 job, " in capsys.readouterr().out
    view = view_of(future)
    assert view.note is not None and view.note.startswith("ran for ") and "ran for" in view._repr_html_()


def test_a_program_can_be_awaited(runner: Runner) -> None:
    async def main() -> list[str]:
        results = await asyncio.gather(*(runner.shell(f"echo {number}") for number in range(2)))
        return [result.output for result in results]

    assert asyncio.run(main()) == ["0\n", "1\n"]


def test_what_is_wrong_is_said_before_anything_is_sent(runner: Runner, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r'such as \["python", "train.py"\]'):
        runner.fleet.submit_program("python train.py", env=PLAIN)
    with pytest.raises(TypeError, match="env='torch'"):
        runner.fleet.submit_program(["true"])
    with pytest.raises(gf.InvalidJob, match="leaves the working directory"):
        runner.shell("true", download="../x")
    with pytest.raises(FileNotFoundError, match="no-such-file"):
        runner.shell("true", upload=tmp_path / "no-such-file")
    (tmp_path / "link").symlink_to("/etc/hostname")
    with pytest.raises(gf.InvalidJob, match="is a link to /etc/hostname"):
        runner.shell("true", upload=f"{tmp_path}/.")


def test_what_the_pool_can_not_do_is_named(runner: Runner) -> None:
    assert "nonsense" in str(runner.fails("true", env="nonsense"))
    missing = runner.submit("no-such-command").exception(SECONDS)
    assert isinstance(missing, gf.ProgramFailed) and "command not found in the environment" in str(missing)
    assert missing.program is not None and missing.program.exit_code is None
    assert re.search("network", str(runner.fails("true", network=True)))
    nowhere = runner.fleet.submit_program(["true"], env=PLAIN, pool="no-programs").exception(SECONDS)
    assert isinstance(nowhere, gf.NoQueue)


def test_a_program_that_waits_says_why(runner: Runner) -> None:
    first = runner.shell("sleep 1000")
    poll(lambda: first.progress is not None, bool, SECONDS)
    second = runner.shell("true")
    with pytest.raises(gf.WaitTimeout, match="no result"):
        second.result(timeout=1.5)
    first.cancel()
    assert second.result(SECONDS).exit_code == 0


def test_a_signal_of_the_command_is_its_exit_code(runner: Runner) -> None:
    error = runner.fails("kill -TERM $$")
    assert error.program is not None and error.program.exit_code == 128 + signal.SIGTERM
