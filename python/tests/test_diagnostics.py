"""Compile errors: logs of NVRTC 12.9 become messages with a caret and a place in the caller's file.

`golden/` has each program, the compiler's log, and the text that people see. `GPUFLEET_GOLDEN=write` writes the texts.
"""

from __future__ import annotations

import linecache
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import gpufleet as gf
from gpufleet._diagnostics import Excerpt, Origin, origin_of, parse, render, report
from gpufleet._errors import explain, failed
from gpufleet._task import Source

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(path.stem for path in GOLDEN.glob("*.log"))


@pytest.mark.parametrize("case", CASES)
def test_a_log_becomes_the_golden_text(case: str) -> None:
    log = (GOLDEN / f"{case}.log").read_text(encoding="utf-8")
    origin = Origin("pipeline.py", 11)
    text = "\n".join(render(diagnostic, origin) for diagnostic in parse(log)) + "\n"
    golden = GOLDEN / f"{case}.txt"
    if os.environ.get("GPUFLEET_GOLDEN") == "write":
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
def test_the_quoted_line_is_that_of_the_code(case: str) -> None:
    code = (GOLDEN / f"{case}.cu").read_text(encoding="utf-8").splitlines()
    found = parse((GOLDEN / f"{case}.log").read_text(encoding="utf-8"))
    assert found
    for diagnostic in found:
        if diagnostic.file == "kernel.cu" and diagnostic.line is not None:
            assert diagnostic.source == code[diagnostic.line - 1].strip()


def test_the_quoted_name_is_marked_whole() -> None:
    for case, names in (
        ("an_undefined_identifier", ["undeclared"]),
        ("two_undefined_identifiers_behind_a_tab", ["yy", "undeclared"]),
    ):
        found = parse((GOLDEN / f"{case}.log").read_text(encoding="utf-8"))
        marked = []
        for diagnostic in found:
            assert diagnostic.source is not None and diagnostic.column is not None
            marked.append(diagnostic.source[diagnostic.column :][: diagnostic.width])
        assert marked == names


@pytest.mark.parametrize(
    "log", ["", "all is well", "1 error detected", "kernel.cu(x): error", "kernel.cu(1): error: \n^\n", "^"]
)
def test_other_texts_are_no_crash(log: str) -> None:
    for diagnostic in parse(log):
        assert render(diagnostic, None)


BROKEN = r"""
extern "C" __global__ void k(float *y) {
    y[0] = undeclared; // printf("\n")
}
"""
LINE = next(
    number
    for number, line in enumerate(Path(__file__).read_text(encoding="utf-8").splitlines(), 1)
    if line.startswith("BROKEN")
)


def test_code_is_found_in_the_file_of_the_caller() -> None:
    assert origin_of(BROKEN) == Origin(__file__, LINE)
    assert origin_of(BROKEN + " ") is None


def test_code_is_found_in_a_notebooks_cell() -> None:
    cell = 'x = 1\ncode = """\nextern int cell;\n"""\nfound = origin_of(code)\n'
    file = "/tmp/ipykernel_1/2.py"
    linecache.cache[file] = (len(cell), None, cell.splitlines(keepends=True), file)
    scope: dict[str, object] = {"origin_of": origin_of}
    exec(compile(cell, file, "exec"), scope)
    assert scope["found"] == Origin(file, 2)


def test_escaped_code_is_found() -> None:
    code = "extern int escaped; // \\n"
    assert origin_of(code) is not None


def test_a_compile_error_shows_the_place_in_this_file(fleet: gf.Fleet) -> None:
    kernel = fleet.RawKernel(BROKEN, "k")
    y = np.zeros(1, np.float32)
    runs = (
        kernel,
        kernel.map(1, 1, [(y,)]).__next__,
        kernel.submit(1, 1, (y,)).result,
        kernel.lazy(1, 1, (y,)).compute,
        kernel.compile,
        fleet.RawModule(code=BROKEN).compile,
    )
    for run in runs:
        with pytest.raises(gf.CompileError) as caught:
            run(1, 1, (y,)) if run is kernel else run()
        (diagnostic,) = caught.value.diagnostics
        assert (diagnostic.severity, diagnostic.line, diagnostic.column) == ("error", 3, 7)
        (note,) = caught.value.__notes__
        assert note.splitlines() == [
            f'  File "{__file__}", line {LINE + 2}',
            '    y[0] = undeclared; // printf("\\n")',
            "           ^^^^^^^^^^",
            '  error: identifier "undeclared" is undefined',
        ]


def test_a_compile_error_in_a_generated_kernel_shows_the_expression(fleet: gf.Fleet) -> None:
    with pytest.raises(gf.CompileError) as caught:
        fleet.ElementwiseKernel("T x", "T y", "y = x + undeclared", "wrong")(np.zeros(3))
    assert "    y = x + undeclared;\n            ^^^^^^^^^^\n" in caught.value.__notes__[0]


REPORT = "illegal access of 4 bytes at 0x7f00 in global memory in kernel `k`\n  at kernel.cu:3\n"
EXCERPT = Excerpt(2, "    unsigned i = threadIdx.x;\n    y[i] = 1;\n}")


def test_a_fault_has_a_note_with_its_line_and_the_report() -> None:
    failure = gf.Failure("user", "kernel_fault", "illegal address", REPORT, 3, EXCERPT)
    error = failed("1", "failed", failure)
    explain(error, Source("", origin=Origin("pipeline.py", 11)))
    (note,) = error.__notes__
    assert note.splitlines() == [
        '  File "pipeline.py", line 13',
        "    y[i] = 1;",
        "  illegal access of 4 bytes at 0x7f00 in global memory in kernel `k`",
        "    at kernel.cu:3",
    ]
    restored = pickle.loads(pickle.dumps(error))
    assert (restored.__notes__, restored.failure, restored.job_id) == ([note], failure, "1")


def test_a_report_without_a_line_or_a_file_is_shown_and_bounded() -> None:
    assert report(None, None, None, None) == ""
    assert report(3, None, None, None) == "  line 3 of the program"
    lines = report(None, None, "x\n" * 100, None).splitlines()
    assert len(lines) == 41 and "60 more lines" in lines[-1]
    for line in (0, 1, 99):
        assert report(line, EXCERPT, None, None) == f"  line {line} of the program"


FAULTY = """
extern "C" __global__ void faulty(float *y) {
    y[1 << 20] = 1;
}
"""


def test_a_fault_shows_the_place_in_this_file(fleet: gf.Fleet) -> None:
    kernel = fleet.RawKernel(FAULTY, "faulty")
    y = np.zeros(1, np.float32)
    with pytest.raises(gf.KernelFault) as caught:
        kernel(1, 1, (y,))
    (note,) = caught.value.__notes__
    begin = next(
        n
        for n, text in enumerate(Path(__file__).read_text(encoding="utf-8").splitlines(), 1)
        if text.startswith("FAULTY")
    )
    assert note.splitlines()[:2] == [f'  File "{__file__}", line {begin + 2}', "    y[1 << 20] = 1;"]
    assert "illegal access of 4 bytes" in note
