"""The magics and `with gpu(...)`, in a kernel of Jupyter on the emulated device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from notebooks import html, run, running, text

import gpufleet as gf
from gpufleet.notebook import gpu
from gpufleet.notebook._cancel import cancel_labelled
from gpufleet.testing import LocalFleet

SETUP = """
%load_ext gpufleet
import numpy as np
import gpufleet as gf
x = np.arange(8, dtype=np.float32)
n = 8
"""
TWICE = """%%gpu
// Doubles.
extern "C" __global__ void twice(const float *x, float *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
"""


def test_a_cell_defines_its_kernels(environment: None, tmp_path: Path) -> None:
    *_, defined, called = run(SETUP, TWICE, "twice.submit(1, 8, (x, x, n)).result().tolist()", folder=tmp_path)
    assert text(defined) == "defined twice(const float* x, float* y, unsigned n)"
    assert text(called) == str([2.0 * i for i in range(8)])


def test_a_wrong_cell_shows_its_line_at_once_and_nothing_of_this_package(environment: None, tmp_path: Path) -> None:
    wrong = TWICE.replace("2 * x[i]", "undeclared")
    _, shown = run("%load_ext gpufleet", wrong, folder=tmp_path, fails=True)
    first, *rest = text(shown).splitlines()
    assert first.startswith("CompileError: job ") and 'kernel.cu(4): error: identifier "undeclared"' in first
    assert rest == [
        '  File "Cell In[2]", line 5',
        "    if (i < n) y[i] = undeclared;",
        "                      ^^^^^^^^^^",
        '  error: identifier "undeclared" is undefined',
    ]


def test_a_wrong_cell_that_runs_shows_its_line_too(environment: None, tmp_path: Path) -> None:
    wrong = TWICE.replace("%%gpu", "%%gpu -i x,n -o y:f32[n] --cover n").replace("2 * x[i]", "undeclared")
    *_, shown = run(SETUP, wrong, folder=tmp_path, fails=True)
    assert 'File "Cell In[2]", line 5' in text(shown) and "Traceback" not in text(shown)


def test_a_cell_runs_with_the_variables_that_it_names(environment: None, tmp_path: Path) -> None:
    code = TWICE.replace("%%gpu", "%%gpu -i x,n -o y=result:f32[n] --cover n")
    code = code.replace("2 * x[i];", '2 * x[i]; if (i == 7) printf("last %g\\n", y[i]);')
    _, shown, result, names = run(
        SETUP, code, "print(result.tolist(), x.tolist())", "'y' in dir(), 'twice' in dir()", folder=tmp_path
    )
    assert "twice: succeeded, EMULATED " in text(shown) and "last 14" in text(shown)
    assert html(shown).count("EMULATED") == 1
    assert text(result) == f"{[2.0 * i for i in range(8)]} {[float(i) for i in range(8)]}\n"
    assert text(names) == "(False, False)"


PRINTS = """%%gpu
extern "C" __global__ void prints(float *x, unsigned at) {
    printf("at %u\\n", at);
    x[at] = 1;
}
"""


def test_a_call_shows_what_its_kernels_printed(environment: None, tmp_path: Path) -> None:
    *_, called, shown, faulted = run(
        SETUP,
        PRINTS,
        "prints(1, 1, (x, 7))[0]",
        "future = prints.submit(1, 1, (x, 3)); future.result(); future",
        "try:\n    prints(1, 1, (x, 1 << 20))\nexcept gf.KernelFault as error:\n    print(error.__notes__[0])",
        folder=tmp_path,
    )
    assert text(called).startswith("at 7\n")
    assert "printed:\nat 3" in html(shown)
    assert text(faulted).startswith("at 1048576\n") and 'File "Cell In[2]", line 4' in text(faulted)


def test_a_cell_that_faults_shows_its_line_and_what_it_printed(environment: None, tmp_path: Path) -> None:
    cell = PRINTS.replace("%%gpu", "%%gpu -i n -o x --cover 1").replace("at)", "n)").replace("[at]", "[n << 20]")
    *_, shown = run(SETUP, cell.replace(", at", ", n"), folder=tmp_path, fails=True)
    assert "at 8" in text(shown) and 'File "Cell In[2]", line 4' in text(shown)


def test_a_cell_in_python_defines_numbas_kernels(environment: None, tmp_path: Path) -> None:
    code = """%%gpu --python
@cuda.jit(device=True, inline="always")
def twice(value):
    return 2 * value

@cuda.jit
def scale(values, factor):
    i = cuda.grid(1)
    if i < values.size:
        values[i] = twice(values[i]) * factor
"""
    _, _, defined, called, _, ran, kept, wrong = run(
        SETUP,
        "from numba import cuda",
        code,
        "scale[1, 8](x, 0.5)\nprint(x.tolist(), scale[1, 8].submit(x, 2).result().tolist())",
        code.replace("--python", "--python -i factor=n -o values=x --cover n"),
        "x.tolist()",
        "scale",
        code.replace("@cuda.jit\n", "@cuda.jit('void(f4[::1], f4)')\n"),
        folder=tmp_path,
        fails=True,
    )
    assert text(defined) == "defined scale[grid, block](...)"
    assert text(called) == f"{[float(i) for i in range(8)]} {[4.0 * i for i in range(8)]}\n"
    assert text(ran) == str([16.0 * i for i in range(8)])
    assert text(kept) == "<gpufleet kernel 'scale' in Python>", "a cell that runs defines nothing"
    assert "UsageError: Numba compiles functions with a signature only where there is a GPU" in text(wrong)


def test_the_times_are_those_of_the_device(environment: None, tmp_path: Path) -> None:
    *_, shown, measured, without = run(
        SETUP,
        TWICE,
        "y = np.zeros_like(x)",
        "%gpu_timeit -n 3 twice(1, 8, (x, y, n)); twice.submit(1, 8, (x, y, n))",
        "m = %gpu_timeit twice(1, 8, (x, y, n))\nlen(m.kernel), all(0 < each < 1 for each in m.kernel)",
        "%gpu_timeit 1 + 1",
        folder=tmp_path,
        fails=True,
    )
    assert "3 runs, 2 jobs each) on the EMULATED device" in text(shown)
    assert text(measured) == "(7, True)"
    assert "the statement submits no job" in text(without)


def test_what_a_cell_prints_in_two_messages_is_one_text(tmp_path: Path) -> None:
    (printed,) = run("print(1, flush=True)\nprint(2, flush=True)\n3", folder=tmp_path)
    assert len(printed) == 3 and text(printed) == "1\n2\n\n3"


def test_open_jobs_are_listed_and_cancelled(environment: None, tmp_path: Path) -> None:
    *_, listed, wrong, _, cancelled, ended, rest = run(
        SETUP,
        """kernel = gf.Fleet().kernel("monte_carlo_pi", labels={"stage": "<i>7"}, name="sampling")
first, second, third = (kernel.submit(10**15) for _ in range(3))""",
        "%gpu jobs",
        "%gpu cancel nonsense",
        "identity = first.job_id",
        "%gpu cancel $identity",
        "first.cancelled(), second.cancelled()",
        "%gpu cancel stage=<i>7\nfor future in (second, third):\n    print(type(future.exception(60)).__name__)",
        folder=tmp_path,
        fails=True,
    )
    assert text(listed).count("sampling: open") == 3
    assert html(listed).count("stage=&lt;i&gt;7") == 3 and "<i>" not in html(listed)
    assert "no open job has an id that begins with 'nonsense'" in text(wrong)
    assert text(cancelled) == "Cancelled 1 job.\n" and text(ended) == "(True, False)"
    assert text(rest) == "JobCancelled\nJobCancelled\n"


def test_an_order_by_label_waits_until_the_jobs_of_other_fleets_are_sent(
    fleet: gf.Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = fleet.kernel("monte_carlo_pi", labels={"run": "9", "part": "a"})
    meant, other = endless.submit(10**15), endless.options(labels={"run": "8"}).submit(10**15)
    steps: list[int | str] = []

    def recorded(step: Callable[..., Any], name: Callable[..., int | str]) -> Callable[..., Any]:
        def record_and_take(*args: Any, **kwargs: Any) -> Any:
            steps.append(name(*args))
            return step(*args, **kwargs)

        return record_and_take

    connection = fleet._connected()
    monkeypatch.setattr(connection, "wait_confirmed", recorded(connection.wait_confirmed, lambda token, _: token))
    with gf.Fleet() as orders:
        monkeypatch.setattr(orders, "cancel", recorded(orders.cancel, lambda: "order"))
        cancel_labelled(orders, {"run": "9"})
    assert steps == [meant._token, "order"]
    assert isinstance(meant.exception(60), gf.JobCancelled)
    other.cancel()


def test_a_variable_named_gpu_is_kept(environment: None, tmp_path: Path) -> None:
    _, loaded, kept = run("gpu = 7", "%load_ext gpufleet", "gpu", folder=tmp_path)
    assert "from gpufleet.notebook import gpu" in text(loaded) and text(kept) == "7"


def test_a_scope_labels_and_counts_its_jobs(fleet: gf.Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    saxpy, x = fleet.kernel("saxpy"), np.ones(4, np.float32)
    with gpu(labels={"run": "7"}, time_limit="30s") as meter:
        futures = [saxpy.submit(float(a), x, x) for a in range(3)]
        assert next(saxpy.map([x], [x], a=1.0)).tolist() == [2] * 4
    assert all(future.done() for future in futures)
    assert futures[0]._options.labels == {"run": "7"} and futures[0]._options.time_limit == 30
    assert saxpy.submit(1.0, x, x)._options.labels == {}
    assert meter.jobs == 4 and meter.kernel_seconds > 0 and meter.states == {"succeeded": 4}
    assert capsys.readouterr().out.startswith("4 jobs, ")


def test_an_exception_in_a_scope_cancels_its_jobs(fleet: gf.Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    endless = fleet.kernel("monte_carlo_pi")
    earlier = endless.submit(10**15)
    with pytest.raises(ZeroDivisionError), gpu():
        inside = endless.submit(10**15)
        raise ZeroDivisionError
    assert inside.cancelled() and not earlier.done()
    assert capsys.readouterr().out == "1 job (1 cancelled), 0 µs of GPU time\n"


def test_a_future_is_shown_with_its_state(fleet: gf.Fleet) -> None:
    future = fleet.kernel("saxpy", labels={"a": "<b>"}).submit(1.0, np.ones(1, np.float32), np.ones(1, np.float32))
    future.result(timeout=60)
    assert "succeeded" in future._repr_html_() and "a=&lt;b&gt;" in future._repr_html_()
    faulty = fleet.kernel("monte_carlo_pi", time_limit="100ms").submit(10**15)
    assert isinstance(faulty.exception(timeout=60), gf.TimeLimitReached)
    assert "failed" in faulty._repr_html_() and "time limit" in faulty._repr_html_()


def test_two_fleets_are_scoped_alike(gpufleet_local: LocalFleet) -> None:
    x = np.ones(4, np.float32)
    with gf.Fleet() as one, gf.Fleet() as other, gpu(labels={"run": "8"}) as meter:
        for fleet in (one, other):
            assert fleet.kernel("saxpy").submit(1.0, x, x)._options.labels == {"run": "8"}
    assert meter.jobs == 2


def test_a_cell_that_waits_updates_one_display(environment: None, tmp_path: Path) -> None:
    endless = '%%gpu -o x:u64[1] --cover 1 --block 1\nextern "C" __global__ void spin(unsigned long long *x) {'
    with running(tmp_path) as kernel:
        kernel.run(f"{SETUP}\nscope = gpu(time_limit='6s', labels={{'<b>': '<i>'}})\nscope.__enter__()")
        sent = kernel.begin(endless + " for (;;) x[0] += 1; }")
        shown = [message for message in kernel.outputs(sent) if "display_data" in message["msg_type"]]
    assert [message["msg_type"] for message in shown] == ["display_data"] + ["update_display_data"] * (len(shown) - 1)
    assert len({message["content"]["transient"]["display_id"] for message in shown}) == 1
    texts = [message["content"]["data"]["text/plain"] for message in shown]
    assert all(text.startswith(("spin: waiting for ", "spin: kernels · ")) for text in texts[:-1])
    assert "spin: kernels · " in texts[-2] and "spin: failed" in texts[-1]
    assert all("<i>" not in message["content"]["data"]["text/html"] for message in shown)
    times = [message["header"]["date"].timestamp() for message in shown[:-1]]
    assert len(times) >= 4 and (len(times) - 1) / (times[-1] - times[0]) <= 4
