"""Cells that run on the machine of a worker: `%%gpu --remote`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from ledger import jobs, poll, states
from notebooks import html, run, running, text
from programs import ENVIRONMENT, PLAIN

import gpufleet.notebook._remote.worker as program

END_SECONDS = 60.0
SHOWN_SECONDS = 1.0
"""The time in which a printed line appears below the cell."""

SETUP = """
%load_ext gpufleet
import numpy as np
import pandas as pd
x = np.arange(5.0)
scale = 3
items, same = [1], {"a": [1, 2]}
before = same

class Point:
    def __init__(self, x):
        self.x = x * scale

    def moved(self):
        return Point(self.x + offset)

offset = 100
point = Point(1)

def twice(value):
    return 2 * value * scale
"""


@pytest.fixture
def remote(programs: str) -> str:
    """The first line of a cell in the environment of these tests."""
    return f"%%gpu --remote --env {ENVIRONMENT} --pool {programs}\n"


def message(outputs: list[Any]) -> str:
    """The last line of an error."""
    return text(outputs).splitlines()[-1]


def test_names_go_to_the_worker_and_come_back(environment: None, remote: str, tmp_path: Path) -> None:
    *_, shown, found, again, functions = run(
        SETUP,
        remote
        + "y = twice(x)\nscale = 4\nitems.append(7)\ndel offset\nz = twice(1)\n"
        + "print(same['a'])\nframe = pd.DataFrame({'a': x})",
        "print(y.tolist(), scale, items, z, same is before, 'offset' in dir(), twice(1))\n"
        "print(type(frame).__name__, float(frame.a.sum()))",
        remote + "offset = 1\npoint = point.moved()\n\ndef thrice(value):\n    return 3 * value * scale",
        "scale = 5\nprint(type(point) is Point, point.x, point.moved().x, thrice(1))",
        folder=tmp_path,
    )
    lines = text(shown).splitlines()
    assert lines[0].startswith("sends ") and "x 194 bytes" in lines[0]
    assert "[1, 2]" in lines
    assert any(line.startswith("came back: frame, items, scale, y, z (") for line in lines)
    assert text(found).splitlines() == [
        "[0.0, 6.0, 12.0, 18.0, 24.0] 4 [1, 7] 8 True False 8",
        "DataFrame 10.0",
    ]
    assert any(line.startswith("came back: offset, point, thrice (") for line in text(again).splitlines())
    assert text(functions) == "True 16 85 15\n"


def test_what_a_cell_shows_comes_back(environment: None, remote: str, tmp_path: Path) -> None:
    plot = "import matplotlib.pyplot as plt\nplt.plot([1, 3])\nplt.show()\nprint('drawn')\nplt.plot([2])"
    _, frame, nothing, plotted, shown = run(
        SETUP,
        remote + "pd.DataFrame({'<a>': [7]})",
        remote + "x.sum();  # not shown",
        remote + plot,
        remote
        + "class Bold:\n    def _repr_html_(self):\n        return '<b>7</b>'\ndisplay(Bold(), 8)\nawait_me = None",
        folder=tmp_path,
    )
    assert "&lt;a&gt;" in html(frame) and "<td>7</td>" in html(frame)
    assert "10.0" not in text(nothing)
    pictures = [output.data for output in plotted if "image/png" in output.get("data", {})]
    assert len(pictures) == 2 and all(data["image/png"].startswith("iVBOR") for data in pictures)
    assert "drawn" in text(plotted) and "Line2D" in text(plotted)
    assert "<b>7</b>" in html(shown) and text(shown).splitlines()[-1] == "8"


def test_an_exception_has_the_lines_of_the_cells(environment: None, remote: str, tmp_path: Path) -> None:
    own = "class Own(Exception):\n    def __init__(self, a, b):\n        super().__init__(a + b)\n"
    _, _, failed, kept, chained, told = run(
        SETUP,
        "def inverse(value):\n    return 1 / value",
        remote + "first = 1\n\nsecond = inverse(0)",
        "first, 'second' in dir()",
        remote
        + own
        + "try:\n    inverse(0)\nexcept ZeroDivisionError as problem:\n    raise Own('a', 'b') from problem",
        remote + "def (",
        folder=tmp_path,
        fails=True,
    )
    error = failed[-1]
    assert (error.ename, error.evalue) == ("ZeroDivisionError", "division by zero")
    assert [line for line in error.traceback if "File" in line] == [
        '  File "Cell In[3]", line 4, in <module>',
        '  File "Cell In[2]", line 2, in inverse',
    ]
    assert "    second = inverse(0)" in error.traceback and "    return 1 / value" in error.traceback
    assert text(kept) == "(1, False)", "what was assigned before came back"
    assert chained[-1].ename == "CellFailed" and chained[-1].traceback[-1] == "Own: ab"
    assert "The above exception was the direct cause of the following exception:" in chained[-1].traceback
    assert told[-1].ename == "SyntaxError" and "sends" not in text(told)


def test_values_that_can_not_travel_are_named(environment: None, remote: str, tmp_path: Path) -> None:
    begin = SETUP + "import threading\nlock = threading.Lock()\nrows = (i for i in x)\nfile = open('log', 'wb')\n"
    *_, lock, inside, rows, file, assigned, back, after = run(
        begin + "def uses():\n    return lock",
        remote + "print(lock)",
        remote + "uses()",
        remote + "for row in rows: pass",
        remote + "file.write(b'x')",
        remote + "with open('log', 'wb') as file:\n    file.write(b'x')\nlength = 3\nprint('opened')",
        remote
        + "import threading\nlock = threading.Lock()\nshared = [1]\nrows = (i for i in range(3))\nboth = [shared, x]",
        "print(type(lock).__name__, next(rows), both[0] is shared, both[1] is x, length)",
        folder=tmp_path,
        fails=True,
    )
    for outputs in (lock, inside):
        assert message(outputs).startswith("UsageError: lock (_thread.lock) can't be sent to the worker: cannot pickle")
        assert "sends" not in text(outputs)
    assert "UsageError: rows (generator) can't be sent" in message(rows)
    assert "UsageError: file (_io.BufferedWriter) can't be sent" in message(file)
    assert "opened" in text(assigned), "the cell assigns the name before it reads it"
    lines = text(back).splitlines()
    assert any(line.startswith("lock (_thread.lock) did not come back: it can't be sent back: ") for line in lines)
    assert any(line.startswith("rows (generator) did not come back: ") for line in lines)
    assert text(after) == "lock 0.0 True True 3\n", "the others came back, and the old values stay"


def test_modules_of_the_worker_alone_stay_usable_there(environment: None, remote: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    module = tmp_path / "elsewhere/only_there.py"
    module.write_text("class Odd(Exception):\n    pass\n\ndef answer():\n    return 42\n")
    send = remote.replace("\n", f" --upload {module}\n")
    *_, first, here, second, raised, missing = run(
        SETUP,
        send
        + "import only_there\nfrom only_there import Odd\nodd = Odd('x')\n"
        + "def ask():\n    return only_there.answer()\nask()",
        "print(only_there)\nask()",
        send + "ask() + only_there.answer()",
        send + "raise only_there.Odd('strange')",
        remote + "ask()",
        folder=tmp_path,
        fails=True,
    )
    lines = text(first).splitlines()
    assert any(
        line.startswith("odd (only_there.Odd) did not come back: it can't be read here: Module") for line in lines
    )
    assert lines[-1] == "42"
    assert "<module 'only_there' of the worker>" in text(here)
    assert here[-1].ename == "ModuleNotFoundError" and "not installed here" in here[-1].evalue
    assert text(second).splitlines()[-1] == "84"
    assert raised[-1].ename == "CellFailed" and raised[-1].evalue == "only_there.Odd: strange"
    assert "install it in the environment of the worker" in message(missing)


def test_sizes_are_told_and_limited(environment: None, remote: str, tmp_path: Path) -> None:
    limited = remote.replace("\n", " --max-size 1MiB\n")
    *_, refused, sent, kept = run(
        SETUP + "big, small = np.zeros(200_000), np.zeros(10)",
        limited + "big.sum() + small.sum()",
        remote + "big = big[:3]\nhuge = small + 1",
        limited + "big = np.zeros(200_000)\nlittle = 1",
        folder=tmp_path,
        fails=True,
    )
    assert message(refused) == (
        "UsageError: the values that the cell needs have 1.5 MiB, more than --max-size 1.0 MiB; the largest: big"
        " (numpy.ndarray, 1.5 MiB), small (numpy.ndarray, 119 bytes); allow more with --max-size, or read large data on"
        " the worker"
    )
    assert text(sent).startswith("sends 1.5 MiB: big 1.5 MiB, small ")
    assert "came back: little (5 bytes)" in text(kept)
    assert "big (numpy.ndarray) did not come back: it has 1.5 MiB, too much for --max-size" in text(kept)


def test_lines_appear_while_the_cell_runs(environment: None, remote: str, tmp_path: Path) -> None:
    code = "import time\nfor _ in range(4):\n    print('at', time.time())\n    time.sleep(0.7)"
    with running(tmp_path) as kernel:
        kernel.run(SETUP)
        sent = kernel.begin(remote + code)
        found = [
            (time.time(), line)
            for shown in kernel.outputs(sent)
            if shown["msg_type"] == "stream"
            for line in shown["content"]["text"].splitlines()
        ]
    lines = [(came, float(line.split()[1])) for came, line in found if line.startswith("at ")]
    assert len(lines) == 4 and all(came - printed < SHOWN_SECONDS for came, printed in lines), lines


def test_an_interrupt_cancels_the_cell(environment: None, remote: str, tmp_path: Path) -> None:
    label = uuid.uuid4().hex
    with running(tmp_path) as kernel:
        kernel.run(f"{SETUP}\nscope = gpu(labels={{'run': {label!r}}})\nscope.__enter__()")
        waiting = kernel.begin(remote + "import time\nprint('begun')\ntime.sleep(1000)")
        next(shown for shown in kernel.outputs(waiting) if "begun" in shown["content"].get("text", ""))
        kernel.manager.interrupt_kernel()
        assert kernel.end(waiting)["ename"] == "KeyboardInterrupt"
        poll(lambda: states(label), lambda found: found == {"cancelled": 1}, END_SECONDS)
        kernel.run(remote + "scale + 1")
    assert states(label)["succeeded"] == 1


def test_a_cell_is_a_job_that_fails_with_the_cell(environment: None, remote: str, tmp_path: Path) -> None:
    label = uuid.uuid4().hex
    *_, ended, unknown = run(
        SETUP,
        f"scope = gpu(labels={{'run': {label!r}}})\nscope.__enter__();",
        remote + "1 / 0",
        remote + "import os\nprint('here', flush=True)\nos._exit(3)",
        remote.replace(f"--env {ENVIRONMENT}", "--env nonsense") + "1",
        folder=tmp_path,
        fails=True,
    )
    assert ended[-1].ename == "ProgramFailed" and "here" in text(ended)
    assert unknown[-1].ename == "RequirementsNotMet" and "nonsense" in unknown[-1].evalue
    recorded = poll(lambda: jobs(label), lambda found: len(found) == 3, END_SECONDS)
    assert {job["name"] for job in recorded} == {"Cell In[3]", "Cell In[4]", "Cell In[5]"}
    assert all(job["state"] == "failed" for job in recorded)


def test_the_environment_of_the_notebook_stays_here(environment: None, remote: str, tmp_path: Path) -> None:
    _, shown, _, here = run(
        "%load_ext gpufleet\nimport os\nfrom os import environ",
        remote + "print(*sorted(name for name in environ if name.startswith('GPUFLEET')))",
        remote + "mine = environ\nmine['X'] = 'there'",
        "print(mine is os.environ, 'X' in os.environ, 'GPUFLEET_LOCAL_DIR' in os.environ)",
        folder=tmp_path,
    )
    assert "GPUFLEET_ON_WORKER" in text(shown).splitlines()
    assert text(here) == "True False True\n"


def test_commands_run_and_magics_do_not(environment: None, remote: str, tmp_path: Path) -> None:
    _, commands, magic, awaited = run(
        SETUP,
        remote + "%matplotlib inline\n!echo $((40 + 2))\nlines = !echo a; echo b\nprint(lines)",
        remote + "%time 1",
        remote + "import asyncio\n\nasync def later():\n    await asyncio.sleep(0)\n    return scale\n\nawait later()",
        folder=tmp_path,
        fails=True,
    )
    assert "42" in text(commands).splitlines() and "['a', 'b']" in text(commands)
    assert magic[-1].evalue == "%time does not run on the worker; use it in a cell without %%gpu --remote"
    assert text(awaited).splitlines()[-1] == "3"


def test_wrong_options_are_named(environment: None, remote: str, tmp_path: Path) -> None:
    begin = "%load_ext gpufleet"
    *_, nowhere, size, unknown, without = (
        run(
            begin,
            "%%gpu --remote\n1",
            remote.replace("\n", " --max-size much\n1"),
            remote.replace("\n", " --memory 1GiB\n1"),
            "import sys\nsys.modules['cloudpickle'] = None",
            remote + "1",
            folder=tmp_path,
            fails=True,
        )[:4]
        + run(begin, "import sys\nsys.modules['cloudpickle'] = None", remote + "1", folder=tmp_path, fails=True)[-1:]
    )
    assert "UsageError: one of the arguments --env --image is required" in text(nowhere)
    assert "is not a size; write a whole number with a unit" in text(size)
    assert "unrecognized arguments: --memory 1GiB" in text(unknown)
    assert without[-1].ename == "ImportError" and "install gpufleet[notebook]" in without[-1].evalue


@pytest.mark.parametrize("version", [(3, 9), (4, 0)])
def test_another_python_is_refused_before_anything_is_read(version: tuple[int, int], tmp_path: Path) -> None:
    folder = tmp_path / "gpufleet_cell"
    folder.symlink_to(Path(program.__file__).parent)
    copied = tmp_path / "there"
    subprocess.run(["cp", "-rL", str(folder), str(copied)], check=True)
    (copied / "request.json").write_text(json.dumps({"python": version}))
    ran = subprocess.run([sys.executable, str(copied)], check=False, capture_output=True, text=True)
    assert ran.returncode == 1, ran.stderr
    refused = json.loads((copied / "back/report.json").read_text())["refused"]
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert refused.startswith(f"the notebook runs Python {version[0]}.{version[1]}, and the environment on the worker")
    assert f"has Python {here}" in refused


def test_an_environment_needs_nothing_but_python(environment: None, programs: str, tmp_path: Path) -> None:
    version = subprocess.run(
        ["/usr/bin/python3", "-c", "import sys; print(*sys.version_info[:2])"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    cell = f"%%gpu --remote --env {PLAIN} --pool {programs}\nimport os\nplain = os.environ['VIRTUAL_ENV']\nplain"
    _, shown = run("%load_ext gpufleet", cell, folder=tmp_path, fails=True)
    if [int(part) for part in version] == list(sys.version_info[:2]):
        assert text(shown).splitlines()[-1] == "'/usr'"
    else:
        assert "can't read its values; choose an environment with Python" in text(shown)
