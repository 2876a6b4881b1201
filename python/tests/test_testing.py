"""The fixtures of `gpufleet.testing`, in runs of pytest as users have them."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from ledger import poll

import gpufleet as gf
from gpufleet.testing import LocalFleet, LocalFleetError, _shared, local_fleet

X = np.arange(4, dtype=np.float32)
END_SECONDS = 60
HOME = str(Path.home())
PAGE = Path(__file__).parents[2] / "docs/src/clients/python-testing.md"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project whose tests use the fixtures, and note in a file which fleet they had."""
    pytester.makeconftest('pytest_plugins = ["gpufleet_pytest"]')
    for name in ("GPUFLEET_LOCAL_DIR", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    # The workers find the compiler below the home folder, which pytester has changed.
    monkeypatch.setenv("HOME", HOME)
    return pytester


TWO_TESTS = """
    import os, pathlib
    import gpufleet, numpy as np, pytest

    @pytest.mark.parametrize("a", [1.0, 2.0])
    def test_saxpy(fleet, gpufleet_local, a):
        x = np.ones(4, np.float32)
        assert (fleet.kernel("saxpy")(a, x, x) == 1 + a).all()
        with gpufleet.Fleet() as own:
            assert repr(own).split(",")[0] == repr(fleet).split(",")[0] and repr(own) != repr(fleet)
        with open({log!r}, "a") as log:
            log.write(f"{{gpufleet_local.folder}} {{os.getpid()}}\\n")
"""


def test_the_workers_of_xdist_share_one_fleet_and_the_last_stops_it(project: pytest.Pytester) -> None:
    log = project.path / "log"
    project.makepyfile(TWO_TESTS.format(log=str(log)))
    result = project.runpytest_subprocess("-n", "2", "--dist", "each")
    result.assert_outcomes(passed=4)
    folders, pids = zip(*(line.split() for line in log.read_text().splitlines()), strict=True)
    assert len(set(folders)) == 1 and len(set(pids)) == 2
    assert not Path(folders[0]).exists()


def test_a_url_of_the_user_is_used_and_nothing_is_started(project: pytest.Pytester, own_fleet: LocalFleet) -> None:
    with gf.Fleet() as fleet:
        url = fleet._place.url
    project.makepyfile(
        """
        import numpy as np
        def test_saxpy(fleet, gpufleet_local):
            assert gpufleet_local is None
            assert fleet.kernel("saxpy")(2.0, np.ones(1, np.float32), np.ones(1, np.float32)) == 3
        """
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUFLEET_AMQP_URL", url)
        patch.setenv("GPUFLEET_BIN_DIR", os.devnull)
        project.runpytest_subprocess().assert_outcomes(passed=1)


def test_without_the_command_the_error_says_how_to_get_it(project: pytest.Pytester) -> None:
    project.makepyfile("def test_nothing(fleet): pass")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPUFLEET_BIN_DIR", raising=False)
        patch.setenv("PATH", os.devnull)
        result = project.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*LocalFleetError: the command gpufleet is not on PATH; build it*GPUFLEET_BIN_DIR*"])


def test_open_jobs_of_a_failed_test_do_not_hold_up_the_next(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        def test_that_leaves_a_job(fleet):
            fleet.kernel("monte_carlo_pi").submit(10**15)
            raise ValueError
        def test_that_comes_next(fleet):
            fleet.kernel("monte_carlo_pi").options(time_limit="60s")(10)
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=1, failed=1)


def test_an_injected_fault_fails_the_job(gpufleet_faults: Callable[..., gf.Fleet]) -> None:
    fleet = gpufleet_faults("launch@saxpy=illegal-address")
    with pytest.raises(gf.KernelFault):
        fleet.kernel("saxpy")(2.0, X, X)
    assert fleet.kernel("monte_carlo_pi")(10) is not None


def test_a_wrong_fault_is_named_by_the_error() -> None:
    with (
        pytest.raises(LocalFleetError, match="with the faults 'sometimes', which may be wrong: error: "),
        local_fleet(faults=["sometimes"]),
    ):
        pass


def test_unittest_has_a_fleet_too() -> None:
    class Tests(unittest.TestCase):
        @classmethod
        def setUpClass(cls) -> None:
            cls.enterClassContext(local_fleet(pools=["default", "team-a"]))

        def test_saxpy(self) -> None:
            with gf.Fleet() as fleet:
                self.assertEqual(fleet.kernel("saxpy", pool="team-a")(2.0, X, X)[1], 3)

    result = unittest.defaultTestLoader.loadTestsFromTestCase(Tests).run(unittest.TestResult())
    assert result.wasSuccessful() and result.testsRun == 1, result.errors


class Pretended:
    """A fleet without processes, which is stopped once."""

    stopped: ClassVar[list[Path]] = []

    def __init__(self, folder: Path, **options: object) -> None:
        self.folder = folder

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self.stopped.append(self.folder)

    def as_default(self) -> AbstractContextManager[None]:
        return nullcontext()


def test_the_guard_never_keeps_the_last_process_from_stopping_the_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_shared, "LocalFleet", Pretended)
    for round_ in range(30):
        with local_fleet() as fleet:
            # The guard comes to its lock before, at and after the end.
            time.sleep(round_ / 100)
        assert not fleet.folder.exists() and Pretended.stopped[round_:] == [fleet.folder]


def test_the_guard_creates_nothing_in_a_folder_that_is_being_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gpufleet.guarded", "gpufleet.users", "gpufleet.lock", "gpufleet.folder"):
        (tmp_path / name).touch()

    def delete_all(*_: object) -> None:
        for path in tmp_path.iterdir():
            path.unlink()

    # The last process deletes the files while the guard waits for its lock.
    monkeypatch.setattr(fcntl, "flock", delete_all)
    _shared.guard(tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        _shared.guard(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_fleet_ends_with_a_killed_program_and_leaves_no_files() -> None:
    program = """
import time
from gpufleet.testing import local_fleet
with local_fleet() as local:
    print(local.folder, flush=True)
    time.sleep(600)
"""
    with tempfile.TemporaryDirectory() as temporary:
        Path(temporary).chmod(0o711)
        environment = {**os.environ, "TMPDIR": temporary}
        command = [sys.executable, "-c", program]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            folder = Path(running.stdout.readline().strip())
            assert (folder / "endpoints.json").exists()
            running.kill()
        poll(lambda: list(Path(temporary).iterdir()), lambda left: not left, END_SECONDS)


def test_the_start_of_pytest_does_not_import_the_package() -> None:
    program = "import sys, gpufleet_pytest; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert not {"gpufleet", "numpy"} & set(ran.stdout.split())


def test_the_examples_of_the_page_pass(project: pytest.Pytester) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    project.makepyfile("\n".join(blocks))
    project.runpytest_subprocess().assert_outcomes(passed=4)
