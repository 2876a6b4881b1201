"""Kernels in PTX: what their entries say of the arguments."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from fake_fleet import FakeFleet

import gpufleet as gf
from gpufleet._task import Pointer, Ptx, Value

SCALE = """\
// .visible .entry wrong(.param .u64 x)
.version 8.0
.target sm_75
.address_size 64

.visible .entry scale(
    .param .u64 .ptr .align 4 scale_param_0,
    .param .f32 scale_param_1,
    .param .u32 scale_param_2
)
.maxntid 256, 1, 1
{
    .reg .pred %p<2>;
    .reg .f32 %f<3>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [scale_param_0];
    ld.param.f32 %f1, [scale_param_1];
    ld.param.u32 %r1, [scale_param_2];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra $done;
    mul.wide.u32 %rd2, %r5, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f2, [%rd3];
    mul.f32 %f2, %f2, %f1;
    st.global.f32 [%rd3], %f2;
$done:
    ret;
}
.visible .entry nothing() { ret; }
.entry bits(.param .b64 a, .param .align 8 .b8 b[16], .param .s64 c, .param .b32 d) { ret; }
"""


def x() -> Any:
    return np.arange(5, dtype=np.float32)


def test_an_entry_tells_the_types_of_numbers() -> None:
    fleet = FakeFleet()
    fleet.ptx(SCALE, "scale").submit(1, 32, (x(), 2, 5))
    assert fleet.task.program == Ptx(SCALE)
    assert fleet.task.launches[0].args == (
        Pointer("arg0"),
        Value(struct.pack("<f", 2), 4),
        Value(struct.pack("<I", 5), 4),
    )
    assert fleet.task.outputs == ("arg0",)
    fleet.ptx(SCALE, "nothing").submit(1, 1, ())


def test_an_array_that_does_not_come_back_may_be_written() -> None:
    fleet = FakeFleet()
    fleet.ptx(SCALE, "bits", outputs=[2]).submit(1, 1, (x(), bytes(16), x(), np.float32(1)))
    assert (fleet.task.outputs, fleet.task.shared) == (("arg2",), ())


def test_a_word_is_an_address_or_a_number() -> None:
    fleet = FakeFleet()
    kernel = fleet.ptx(SCALE, "bits", outputs=[2])
    kernel.submit(1, 1, (x(), bytes(16), x(), np.float32(1)))
    assert (list(fleet.task.buffers), fleet.task.outputs) == (["arg0", "arg2"], ("arg2",))
    kernel.submit(1, 1, (7, np.zeros(1, "f8,f8")[0], -1, np.int32(1)))
    args: tuple[object, ...] = fleet.task.launches[0].args
    assert (args[0], args[2]) == (Value(struct.pack("<Q", 7), 8), Value(struct.pack("<q", -1), 8))


@pytest.mark.parametrize(
    ("entry", "args", "message"),
    [
        ("scale", (x(), 2), r"kernel 'scale' takes 3 arguments \(arg0, arg1, arg2\), but 2 were given"),
        ("scale", (x(), x(), 5), "parameter 'arg1' (.*) takes float32, but got 5 of float32"),
        ("scale", (x(), 2, -1), "takes a number from 0 to 4294967295"),
        ("scale", ([1], 2, 1), "takes an array: list is not an array"),
        ("bits", (1, bytes(16), 1, 1.0), "pass a NumPy scalar with this layout, or its bytes"),
    ],
)
def test_wrong_arguments_are_refused(entry: str, args: Any, message: str) -> None:
    fleet = FakeFleet()
    with pytest.raises(TypeError, match=message):
        fleet.ptx(SCALE, entry).submit(1, 1, args)
    assert fleet.tasks == []


@pytest.mark.parametrize(
    ("text", "entry", "outputs", "message"),
    [
        (SCALE, "wrong", None, "the PTX has no entry 'wrong'; its entries are scale, nothing, bits"),
        ("", "k", None, "the PTX has no entry 'k'; it has no .entry"),
        (SCALE, "scale", [1], "outputs: argument 1 of entry 'scale' can not be an array"),
        (SCALE, "scale", [3], "outputs: argument 3 of entry 'scale' can not be an array"),
    ],
)
def test_wrong_entries_are_refused(text: str, entry: str, outputs: list[int] | None, message: str) -> None:
    with pytest.raises(gf.InvalidJob, match=message):
        FakeFleet().ptx(text, entry, outputs=outputs)


def test_ptx_runs(fleet: gf.Fleet) -> None:
    assert fleet.ptx(SCALE, "scale")(1, 32, (x(), 2, 5)).tolist() == [0, 2, 4, 6, 8]
