"""The options of `%%gpu`, the arguments that follow from them, and the options of scopes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpufleet._scope import Scope, applied, entered
from gpufleet._task import Options, Ptx, Task
from gpufleet.notebook._arguments import CellParameter, arguments, results
from gpufleet.notebook._cuda import chosen
from gpufleet.notebook._options import CellError, parse

PARAMETERS = [
    CellParameter("x", is_array=True),
    CellParameter("y", is_array=True, is_writable=True),
    CellParameter("n"),
]
NAMES: dict[str, Any] = {"x": np.ones(3, np.float32), "photo": np.zeros((2, 3), np.uint8), "n": 3, "width": 640}


def test_every_argument_comes_from_a_named_variable() -> None:
    options = parse("-i x=photo,n -o y=drawing:u8[2,width] --cover 1024")
    photo, drawing, count = arguments("k", PARAMETERS, options, NAMES)
    assert photo is NAMES["photo"] and count == 3
    assert (drawing.shape, drawing.dtype) == ((2, 640), np.uint8) and not drawing.any()
    assert results(PARAMETERS, options, "result") == {"drawing": "result"}


def test_an_output_without_a_type_passes_its_variable() -> None:
    options = parse("-i x,n -o y=photo --cover 1024")
    assert arguments("k", PARAMETERS, options, NAMES)[1] is NAMES["photo"]


def test_of_several_outputs_each_goes_to_its_variable() -> None:
    parameters = [CellParameter(name, is_array=True, is_writable=True) for name in "abc"]
    options = parse("-i b=x -o a:f32[1],c=last:complex64[2] --cover 1")
    assert results(parameters, options, ("A", "B", "C")) == {"a": "A", "last": "C"}


@pytest.mark.parametrize(
    ("line", "grid", "block"),
    [
        ("--cover 1025", (5,), (256,)),
        ("--cover width,n", (40, 1), (16, 16)),
        ("--cover 9,9,9", (2, 2, 3), (8, 8, 4)),
        ("--cover 100 --block n", (34,), (3,)),
    ],
)
def test_the_grid_covers_the_threads(line: str, grid: tuple[int, ...], block: tuple[int, ...]) -> None:
    assert parse(line).grid(NAMES) == (grid, block)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-i x,n", "--cover is missing"),
        ("-i x:f32[3] --cover 1", "write x or x=photo"),
        ("-o y:f99[3] --cover 1", "'f99' is no dtype"),
        ("-o y: --cover 1", "write z:f32"),
        ("-i x -o x --cover 1", "'x' is in -i and in -o"),
        ("-i 'x --cover 1", "No closing quotation"),
        ("--everything", "%%gpu[?] shows the options"),
    ],
)
def test_a_wrong_option_is_explained(line: str, message: str) -> None:
    with pytest.raises(CellError, match=message):
        parse(line)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-i x,n --cover 1", "'y' of kernel 'k' is not given; add -o y:f32"),
        ("-o y:f32[3] -i x --cover 1", "'n' of kernel 'k' is not given; add -i n"),
        ("-i z --cover 1", "has no parameter 'z'; its parameters are x, y, n"),
        ("-o x:f32[1] --cover 1", "'x' of kernel 'k' can't be in -o, because the kernel only reads it"),
        ("-o n:f32[1] --cover 1", "'n' of kernel 'k' can't be in -o, because it is no array"),
        ("-i x=absent,n -o y:f32[1] --cover 1", "there is no variable 'absent'"),
        ("-i x,n -o y:f32[absent] --cover 1", "'absent' is neither a positive number nor a variable"),
        ("-i x,n -o y:f32[0] --cover 1", "'0' is neither a positive number"),
    ],
)
def test_a_wrong_argument_is_explained(line: str, message: str) -> None:
    with pytest.raises(CellError, match=message):
        arguments("k", PARAMETERS, parse(line), NAMES)


def test_wrong_extents_are_explained() -> None:
    with pytest.raises(CellError, match="more than three"):
        parse("--cover 1,2,3,4").grid({})
    with pytest.raises(CellError, match="--cover has 1 extents, but --block has 2"):
        parse("--cover 1 --block 16,16").grid({})


def test_one_of_several_kernels_has_to_be_chosen() -> None:
    assert chosen(["a"], parse("--cover 1")) == "a"
    assert chosen(["a", "b"], parse("--cover 1 --kernel b")) == "b"
    with pytest.raises(CellError, match="--kernel has to be one of a, b"):
        chosen(["a", "b"], parse("--cover 1"))


def test_the_options_of_a_kernel_win_over_those_of_scopes_and_inner_scopes_over_outer_ones() -> None:
    task = Task(Ptx(""), {}, (), (), Options(priority="high", labels={"a": "kernel"}))
    outer = Scope(Options(pool="outer", priority="low", labels={"a": "outer", "b": "outer", "c": "outer"}))
    inner = Scope(Options(pool="inner", time_limit=3, labels={"a": "inner", "b": "inner"}))
    with entered(outer), entered(inner):
        options = applied(task).options
    assert (options.pool, options.priority, options.time_limit) == ("inner", "high", 3)
    assert options.labels == {"a": "kernel", "b": "inner", "c": "outer"}
    assert applied(task) is task
