"""Elementwise kernels: broadcasting, types and what is refused."""

from __future__ import annotations

import operator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fake_fleet import FakeFleet
from numpy.testing import assert_allclose, assert_array_equal

import gpufleet as gf
from gpufleet._task import Input, Pointer, Source, Zeros


def f32(*shape: int) -> Any:
    return np.arange(float(np.prod(shape)), dtype=np.float32).reshape(shape)


def add(fleet: gf.Fleet, **keywords: Any) -> Any:
    return fleet.ElementwiseKernel("T x, T y", "T z", "z = x + y", "add", **keywords)


def test_equal_shapes_need_no_strides() -> None:
    fleet = FakeFleet()
    x = f32(3, 4)
    add(fleet).submit(x, x)
    program, (launch,) = fleet.task.program, fleet.task.launches
    assert isinstance(program, Source)
    assert "typedef float T;" in program.code and "_x_axes" not in program.code
    assert (launch.entry, launch.grid, launch.block) == ("add_kernel", (1,), (256,))
    assert launch.args[:3] == (Pointer("x"), Pointer("y"), Pointer("z"))
    sent = fleet.task.buffers["x"]
    assert isinstance(sent, Input) and np.shares_memory(sent.array, x)
    assert fleet.task.buffers["z"] == Zeros((12,), "f32")
    assert (fleet.task.outputs, fleet.task.options.name) == (("z",), "add")


def test_the_code_does_not_depend_on_the_shapes() -> None:
    fleet = FakeFleet()
    for rows, columns in ((3, 4), (100, 7)):
        add(fleet).submit(f32(rows, columns), f32(columns))
    assert fleet.tasks[0].program == fleet.tasks[1].program


def test_large_arrays_are_looped_over() -> None:
    fleet = FakeFleet()
    x = np.zeros(1 << 25, np.uint8)
    add(fleet).submit(x, 1)
    assert fleet.task.launches[0].grid == (1 << 16,)
    add(fleet).submit(x, 1, block_size=512)
    assert fleet.task.launches[0].block == (512,)


@pytest.mark.parametrize(
    ("args", "keywords", "message"),
    [
        ((f32(3),), {}, r"kernel 'add' takes 2 inputs, and 1 outputs if you pass them; 1 arguments were given"),
        ((f32(3), f32(4)), {}, r"the shapes do not broadcast: x \(3,\), y \(4,\)"),
        ((f32(3), np.zeros(3)), {}, r"'y' has the dtype float64, but the type T is float32; convert it with .astype"),
        ((f32(3), np.float64(1)), {}, "'y' has the dtype float64, but the type T is float32"),
        ((np.zeros(3, np.int32), 2.5), {}, "'y' takes a whole number"),
        ((np.zeros(3, np.uint8), 300), {}, "'y' takes a number from 0 to 255"),
        ((f32(3), ["a"]), {}, "'y': list is not an array"),
        ((f32(3), np.array(["a"])), {}, "'y': dtype .* holds text"),
        ((f32(3), 1, f32(4)), {}, r"do not broadcast"),
        ((f32(1), 1, f32(4)[:1].reshape(1, 1)), {}, None),
        ((f32(4), 1, f32(1)), {}, r"the output 'z' has the shape \(1,\), but the arguments broadcast to \(4,\)"),
        ((f32(3), 1, 2), {}, "the output 'z' is a number; pass an array"),
        ((f32(3), 1), {"size": 3}, "size is for kernels whose arrays are all raw"),
        ((f32(3), 1), {"stream": 3}, "unknown argument 'stream'; use size or block_size"),
    ],
)
def test_wrong_arguments_are_refused(args: Any, keywords: dict[str, Any], message: str | None) -> None:
    fleet = FakeFleet()
    if message is None:
        add(fleet).submit(*args, **keywords)
        return
    with pytest.raises(TypeError, match=message):
        add(fleet).submit(*args, **keywords)
    assert fleet.tasks == []


@pytest.mark.parametrize(
    ("in_params", "out_params", "name", "message"),
    [
        ("T i", "T z", "k", "'i' can not name a parameter; i, n and names with a leading _ are reserved"),
        ("T _x", "T z", "k", "'_x' can not name a parameter"),
        ("T", "T z", "k", "'T' is not a parameter; write a type and a name"),
        ("raw x", "T z", "k", "'raw x' is not a parameter"),
        ("float31 x", "T z", "k", "'float31' is not a type; write a letter as a placeholder, or a dtype"),
        ("object x", "T z", "k", "'object' is not a type"),
        ("T x", "T x", "k", "kernel 'k' has two parameters named 'x'; rename one"),
        ("T x", "", "k", "kernel 'k' has no output; name one"),
        ("T x", "T z", "a b", "'a b' can not name a kernel"),
    ],
)
def test_wrong_parameters_are_refused(in_params: str, out_params: str, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FakeFleet().ElementwiseKernel(in_params, out_params, "", name)


def test_raw_arrays_need_a_size() -> None:
    kernel = FakeFleet().ElementwiseKernel("raw T x", "raw T y", "y[i] = x[i]", "copy")
    with pytest.raises(TypeError, match="all arrays are raw; pass size="):
        kernel.submit(f32(3))


@pytest.mark.parametrize(
    "shapes",
    [((2, 3), (3,)), ((4, 1), (1, 5)), ((2, 1, 3), (4, 1)), ((), (3, 3)), ((1,), (2, 2)), ((3, 1, 1, 2), (1, 4, 1, 2))],
)
def test_shapes_are_broadcast(fleet: gf.Fleet, shapes: tuple[tuple[int, ...], ...]) -> None:
    x, y = f32(*shapes[0]), f32(*shapes[1]) * 10
    assert_array_equal(add(fleet)(x, y), x + y, strict=True)


def test_views_are_read_in_their_order(fleet: gf.Fleet) -> None:
    x, y = f32(6, 4)[::-2, ::3], f32(2, 3).T
    assert_array_equal(add(fleet)(x, y), x + y, strict=True)
    whole = np.zeros((4, 6), np.float32)
    add(fleet)(x, y, whole[:3, ::-4])
    assert_array_equal(whole[:3, ::-4], x + y)


def test_arrays_without_elements_give_arrays_without_elements(fleet: gf.Fleet) -> None:
    assert add(fleet)(f32(0, 3), f32(3)).shape == (0, 3)
    z = f32(3, 0)
    assert add(fleet)(f32(3, 0), 1, z) is z


def test_numbers_only_give_an_array_without_dimensions(fleet: gf.Fleet) -> None:
    assert_array_equal(add(fleet)(1, 2), np.array(3))
    assert add(fleet)(1.5, np.float32(2)).dtype == np.float32


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"],
)
def test_every_type_of_number(fleet: gf.Fleet, dtype: str) -> None:
    x = np.arange(8).astype(dtype)
    choose = fleet.ElementwiseKernel("T x, bool upper", "T z", "z = upper ? x : T(0)", "choose")
    upper = np.arange(8) > 3
    assert_array_equal(choose(x, upper), np.where(upper, x, np.zeros_like(x)), strict=True)


def test_half_and_bfloat16(fleet: gf.Fleet) -> None:
    for dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        x = np.arange(8).astype(dtype)
        assert_array_equal(add(fleet)(x, 2), x + dtype.type(2), strict=True)


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul, operator.truediv])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_arithmetic(fleet: gf.Fleet, op: Any, dtype: str) -> None:
    sign = {"add": "+", "sub": "-", "mul": "*", "truediv": "/"}[op.__name__]
    kernel = fleet.ElementwiseKernel("T x, T y", "T z", f"z = x {sign} y", "arithmetic")
    x = (np.arange(6) - 2 + 1j * np.arange(6)).astype(dtype)
    y = (np.arange(6) + 1 - 2j).astype(dtype)
    assert_allclose(kernel(x, y), op(x, y), rtol=1e-6)
    assert kernel(x, 2 - 1j).dtype == dtype


def test_several_outputs_are_a_tuple(fleet: gf.Fleet) -> None:
    kernel = fleet.ElementwiseKernel("T x, T y", "T q, T r", "q = x / y; r = x % y", "divide")
    x = np.arange(10, dtype=np.int32)
    quotient, remainder = kernel.submit(x, 3).result()
    assert_array_equal(quotient, x // 3)
    assert_array_equal(remainder, x % 3)


def test_no_return_and_return_tuple(fleet: gf.Fleet) -> None:
    z = f32(3)
    assert add(fleet, no_return=True)(f32(3), 1, z) is None
    assert_array_equal(z, f32(3) + 1)
    (only,) = add(fleet, return_tuple=True)(f32(3), 1)
    assert_array_equal(only, f32(3) + 1)


def test_an_output_that_is_also_read_keeps_its_contents(fleet: gf.Fleet) -> None:
    kernel = fleet.ElementwiseKernel("T x", "T y", "y += x", "accumulate")
    y = f32(4)
    kernel(f32(4), y)
    assert_array_equal(y, f32(4) * 2)
    assert kernel.submit(f32(4), y).result().tolist() == (f32(4) * 3).tolist()
    assert_array_equal(y, f32(4) * 2)


def test_preamble_preparation_and_end_of_the_loop(fleet: gf.Fleet) -> None:
    kernel = fleet.ElementwiseKernel(
        "T x, raw T scale",
        "T y, raw int32 loops",
        "y = twice(x) * factor; ++count",
        "prepared",
        preamble="template <typename T> __device__ T twice(T x) { return x * 2; }",
        loop_prep="T factor = scale[0]; int count = 0",
        after_loop="atomicAdd(&loops[0], count)",
    )
    y, loops = kernel(f32(300), np.array([3], np.float32), np.empty(300, np.float32), np.zeros(1, np.int32))
    assert_array_equal(y, f32(300) * 6)
    assert loops.tolist() == [300]


def test_raw_arrays_know_their_shape(fleet: gf.Fleet) -> None:
    kernel = fleet.ElementwiseKernel(
        "raw T x", "int64 y", "y = i == 0 ? x.size() : i == 1 ? x.ndim : x.shape()[i - 2]", "shape_of"
    )
    assert kernel(f32(4, 5, 6), np.empty(5, np.int64)).tolist() == [120, 3, 4, 5, 6]


def test_a_kernel_maps_over_many_inputs(fleet: gf.Fleet) -> None:
    results = add(fleet).map([f32(4) + n for n in range(50)], range(50))
    assert len(results) == 50
    for n, result in enumerate(results):
        assert_array_equal(result, f32(4) + 2 * n)
