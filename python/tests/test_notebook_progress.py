"""What a cell shows while it waits, in a kernel of Jupyter on the emulated device."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from notebooks import Kernel, running
from paced import PACED

UPDATE_SECONDS_MIN = 0.4
"""Updates are half a second apart. A busy machine may delay the first of two more than the second."""
SETUP = f"""
%load_ext gpufleet
import asyncio
import gpufleet as gf
fleet = gf.Fleet()
kernel = fleet.RawKernel({PACED!r}, "paced")
kernel.compile()
def arguments(seconds):
    return gf.zeros(1, "uint32"), gf.ProgressCounter(5 * seconds), 5 * seconds
def submit(seconds):
    return kernel.submit(1, 1, arguments(seconds))
"""
CALL = "kernel(1, 1, arguments(4))"
CELL = f"%%gpu -o y:u32[1] -i progress=counter,steps --cover 1 --block 1\n{PACED}"


class Outputs:
    """What a cell shows, in the order in which it comes."""

    def __init__(self, kernel: Kernel, code: str) -> None:
        messages = list(kernel.outputs(kernel.begin(code)))
        self.errors = [each["content"]["evalue"] for each in messages if each["msg_type"] == "error"]
        self.events = [self._event(each) for each in messages if each["msg_type"] in SHOWN]
        self.displays = [each["content"] for each in messages if each["msg_type"] == "display_data"]
        self.updates = [each for each in messages if each["msg_type"] in ("display_data", "update_display_data")]
        self.lines = [each["content"]["data"]["text/plain"] for each in self.updates]
        self.text = "".join(each["content"]["text"] for each in messages if each["msg_type"] == "stream")

    def _event(self, message: dict[str, Any]) -> str:
        return "text" if message["msg_type"] == "stream" else "display"

    def assert_calm(self) -> None:
        """One display, which is updated at most twice a second."""
        assert len(self.displays) == 1
        times = [each["header"]["date"] for each in self.updates]
        # The last one shows the end at once.
        assert all((after - before).total_seconds() > UPDATE_SECONDS_MIN for before, after in pairwise(times[:-1]))


SHOWN = ("stream", "display_data", "update_display_data")


@pytest.fixture(scope="module")
def kernel(undisturbed: object, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running(Path(tmp_path_factory.mktemp("notebook"))) as found:
        found.run(SETUP)
        yield found


WAITS = {
    "a call": CALL,
    "a result": "submit(4).result()",
    "an await": "await submit(4)",
    "an attached option": "kernel.options(labels={'a': 'b'}).submit(1, 1, arguments(4)).result()",
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_cell_that_waits_shows_a_bar_and_what_the_kernel_prints(kernel: Kernel, wait: str) -> None:
    shown = Outputs(kernel, WAITS[wait])
    assert not shown.errors
    shown.assert_calm()
    assert any(line.startswith("paced: kernels ") and "/20 steps · " in line for line in shown.lines)
    assert any("about " in line and "█" in line for line in shown.lines)
    assert shown.lines[-1].startswith("paced: succeeded · ")
    printed = "".join(f"step {step}\n" for step in range(1, 21))
    assert shown.text.startswith(printed), "all of it, once and in order"
    assert shown.events.index("text") < len(shown.events) - 3, "it comes while the kernel runs"
    assert 'style="width:' in shown.updates[-2]["content"]["data"]["text/html"]


def test_a_job_of_an_earlier_cell_is_shown_by_the_cell_that_waits_for_it(kernel: Kernel) -> None:
    begun = Outputs(kernel, "earlier = submit(5)")
    assert not begun.events, "a cell that does not wait shows nothing"
    shown = Outputs(kernel, "earlier.result()")
    shown.assert_calm()
    assert any("/25 steps · " in line for line in shown.lines)
    assert shown.text.startswith("step 1\nstep 2\n"), "what it printed before is shown too"
    assert shown.text.count("step ") == 25


def test_a_batch_has_one_display(kernel: Kernel) -> None:
    shown = Outputs(kernel, "with fleet.batch():\n    for _ in range(3):\n        submit(2)\n    kernel.compile()")
    shown.assert_calm()
    assert any(line.startswith("0 of 4 jobs done · ") or " of 4 jobs done · " in line for line in shown.lines)
    assert any("\npaced: kernels " in line for line in shown.lines)
    assert shown.lines[-1].startswith("4 of 4 jobs done · ")
    assert sorted(set(shown.text.split("\n"))) == sorted({"", *(f"step {step}" for step in range(1, 11))})


def test_a_cell_in_cuda_c_shows_its_card_in_place_of_the_bar(kernel: Kernel) -> None:
    kernel.run("counter, steps = gf.ProgressCounter(15), 15")
    shown = Outputs(kernel, CELL)
    assert not shown.errors
    shown.assert_calm()
    assert any("/15 steps · " in line for line in shown.lines)
    assert shown.lines[-1].startswith("paced: succeeded, EMULATED ")
    assert shown.text == "".join(f"step {step}\n" for step in range(1, 16))
    wrong = Outputs(kernel, CELL.replace("-i progress=counter,steps", "-i steps -o progress=counter"))
    assert wrong.text.endswith("a progress counter does not come back; pass it with -i progress=counter\n")


def test_brief_jobs_show_nothing(kernel: Kernel) -> None:
    shown = Outputs(kernel, "import numpy as np\nfleet.kernel('saxpy')(1.0, np.ones(3, 'f4'), np.ones(3, 'f4'));")
    assert not shown.events and not shown.errors


def test_a_job_that_waits_says_why(kernel: Kernel) -> None:
    kernel.run("blocking = [submit(60) for _ in range(24)]")
    shown = Outputs(
        kernel, "try:\n    submit(1).result(timeout=2.6)\nexcept gf.WaitTimeout:\n    fleet.cancel(blocking)"
    )
    assert not shown.errors
    shown.assert_calm()
    assert shown.lines[0].startswith("paced: waiting for 1 s")


def test_a_cell_that_ends_early_leaves_its_jobs(kernel: Kernel) -> None:
    shown = Outputs(kernel, "import time\nlate = submit(6)\ntime.sleep(2.5)")
    assert shown.lines[-1] == "paced: still open at the end of the cell"
    kernel.run("late.cancel()")


def test_an_open_future_is_shown_with_its_progress(kernel: Kernel) -> None:
    kernel.run("import time\nopen_ = submit(6)\nwhile open_.progress is None: time.sleep(0.05)")
    shown = Outputs(kernel, "open_")
    assert not shown.errors
    kernel.run("assert 'kernels ' in open_._repr_html_() and ' steps · ' in open_._repr_html_()\nopen_.cancel()")
