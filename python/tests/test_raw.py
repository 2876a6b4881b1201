"""Raw kernels: what they send for CuPy's calls, what they refuse, and what comes back."""

from __future__ import annotations

import pickle
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fake_fleet import FakeFleet

import gpufleet as gf
from gpufleet import RemoteArray
from gpufleet._binding import ArgumentError
from gpufleet._raw import RawKernel, RawModule
from gpufleet._task import Input, Pointer, Source, Stored, Value, Zeros

ADD = r"""
extern "C" __global__
void my_add(const float* x1, const float* x2, float* y) {
    int tid = blockDim.x * blockIdx.x + threadIdx.x;
    y[tid] = x1[tid] + x2[tid];
}
"""


def kernel(parameters: str, fleet: FakeFleet | None = None) -> RawKernel:
    return RawKernel(fleet or FakeFleet(), f'extern "C" __global__ void k({parameters}) {{}}', "k")


def add(buffers: dict[str, Any]) -> None:
    buffers["y"][...] = buffers["x1"] + buffers["x2"]


def f32(*shape: int) -> Any:
    return np.arange(float(np.prod(shape)), dtype=np.float32).reshape(shape)


def test_cupys_first_example_is_sent_as_it_is_called() -> None:
    fleet = FakeFleet(add)
    x1, x2, y = f32(5, 5), f32(5, 5), np.zeros((5, 5), np.float32)
    out = RawKernel(fleet, ADD, "my_add")((5,), (5,), (x1, x2, y))
    assert out is y
    assert (y == x1 + x2).all()
    assert fleet.task.program == Source(ADD)
    assert (fleet.task.outputs, fleet.task.shared) == (("y",), ("x1", "x2"))
    assert fleet.task.options.name == "my_add"
    (launch,) = fleet.task.launches
    assert (launch.entry, launch.grid, launch.block, launch.shared_bytes) == ("my_add", (5,), (5,), 0)
    assert launch.args == (Pointer("x1"), Pointer("x2"), Pointer("y"))
    sent = fleet.task.buffers["x1"]
    assert isinstance(sent, Input) and np.shares_memory(sent.array, x1)


def test_submit_never_changes_its_arguments() -> None:
    fleet = FakeFleet(add)
    x1, x2, y = f32(6), f32(6), np.zeros(6, np.float32)
    future = RawKernel(fleet, ADD, "my_add").submit(1, 6, (x1, x2, y))
    assert (future.result() == x1 + x2).all()
    assert not y.any()


def test_several_outputs_are_a_named_tuple() -> None:
    def run(buffers: dict[str, Any]) -> None:
        buffers["low"] -= 1
        buffers["high"] += 1

    low, high = np.zeros(3, np.int32), np.zeros(3, np.int32)
    k = kernel("int* low, int n, int* high", FakeFleet(run))
    result = k.submit(1, 3, (low, 3, high)).result()
    assert type(result).__name__ == "k_result"
    assert result.low.tolist() == [-1, -1, -1] and result.high.tolist() == [1, 1, 1]
    out = k(1, 3, (low, 3, high))
    assert out.low is low and out.high is high and low.tolist() == [-1, -1, -1]


def test_a_kernel_without_outputs_returns_none() -> None:
    assert kernel("const int* x")(1, 1, (np.zeros(1, np.int32),)) is None


def test_a_view_is_written_back_through_its_strides() -> None:
    fleet = FakeFleet(add)
    whole = np.zeros((4, 4), np.float32)
    RawKernel(fleet, ADD, "my_add")(1, 8, (f32(2, 4).T, f32(8).reshape(4, 2), whole[:, ::-2]))
    assert (whole[:, ::-2] == f32(2, 4).T + f32(8).reshape(4, 2)).all()
    assert not whole[:, ::2].any()


def test_the_same_array_twice_is_one_buffer() -> None:
    fleet = FakeFleet()
    x = f32(4)
    kernel("const float* x, float* y", fleet).submit(1, 4, (x, x))
    assert list(fleet.task.buffers) == ["x"]
    assert fleet.task.launches[0].args == (Pointer("x"), Pointer("x"))
    assert fleet.task.outputs == ("x",)


def test_complex_and_bfloat16_come_back_as_themselves() -> None:
    z = (f32(4) + 1j).astype(np.complex64)
    b = np.arange(4).astype(ml_dtypes.bfloat16)
    fleet = FakeFleet()
    result = kernel("cuFloatComplex* z, __nv_bfloat16* b", fleet).submit(1, 4, (z, b)).result()
    assert (result.z.dtype, result.b.dtype) == (z.dtype, b.dtype)
    assert (result.z == z).all() and (result.b == b).all()
    assert [buffer.dtype for buffer in fleet.task.buffers.values()] == ["f32", "bf16"]


def test_writable_buffers_of_other_kinds_are_written_back() -> None:
    def run(buffers: dict[str, Any]) -> None:
        buffers["x"] += 1

    data = bytearray(b"abc")
    assert kernel("char* x", FakeFleet(run))(1, 3, (data,)) is data
    assert data == b"bcd"


def test_arrays_in_the_store_and_zeros_need_no_bytes() -> None:
    remote = RemoteArray(Stored("00" * 32, (4,), "f32"))
    fleet = FakeFleet()
    k = kernel("const float* x, float* y", fleet)
    result = k.submit(1, 4, (remote, Zeros((4,), "f32"))).result()
    assert fleet.task.buffers == {"x": Stored("00" * 32, (4,), "f32"), "y": Zeros((4,), "f32")}
    assert result.tolist() == [0, 0, 0, 0]
    assert k(1, 4, (remote, Zeros((2,), "f32"))).tolist() == [0, 0]
    with pytest.raises(ArgumentError, match="takes float32, but the array has int32"):
        k.submit(1, 4, (Stored("", (4,), "i32"), Zeros((4,), "f32")))


def test_arrays_without_elements_and_none_are_null_pointers() -> None:
    fleet = FakeFleet()
    result = (
        kernel("const float* x, const float* none, float* y", fleet).submit(1, 1, (f32(0), None, f32(3, 0))).result()
    )
    assert fleet.task.launches[0].args == (Value(bytes(8), 8),) * 3
    assert (fleet.task.buffers, fleet.task.outputs) == ({}, ())
    assert (result.shape, result.dtype) == ((3, 0), np.float32)


@pytest.mark.parametrize(
    ("type_", "value", "data", "align"),
    [
        ("int", 7, struct.pack("<i", 7), 4),
        ("unsigned char", 255, b"\xff", 1),
        ("long long", -1, b"\xff" * 8, 8),
        ("size_t", 2**64 - 1, b"\xff" * 8, 8),
        ("float", 2.5, struct.pack("<f", 2.5), 4),
        ("float", 3, struct.pack("<f", 3), 4),
        ("double", 0.1, struct.pack("<d", 0.1), 8),
        ("__half", 1.5, struct.pack("<e", 1.5), 2),
        ("__nv_bfloat16", 1.00390625, b"\x80\x3f", 2),
        ("__nv_bfloat16", 1.01171875, b"\x82\x3f", 2),
        ("bool", True, b"\x01", 1),
        ("short", np.int16(-2), struct.pack("<h", -2), 2),
        ("float", np.array([2.5], np.float32), struct.pack("<f", 2.5), 4),
        ("cuFloatComplex", 1 + 2j, struct.pack("<ff", 1, 2), 8),
        ("double2", np.complex128(1 + 2j), struct.pack("<dd", 1, 2), 16),
        ("float3", np.array([1, 2, 3], np.float32), struct.pack("<fff", 1, 2, 3), 4),
        ("float4", np.zeros(1, "f4,f4,f4,f4")[0], bytes(16), 16),
        ("Params", np.zeros(1, np.dtype([("a", "f4"), ("n", "i8")], align=True))[0], bytes(16), 8),
        ("Params", np.zeros(1, np.dtype({"names": ["m"], "formats": [("f4", (5, 5))]}))[0], bytes(100), 4),
        ("Params", b"12345678", b"12345678", 8),
        ("Params", b"123456789012", b"123456789012", 4),
        ("Mode", np.int32(2), struct.pack("<i", 2), 4),
    ],
)
def test_a_number_takes_the_type_of_its_parameter(type_: str, value: object, data: bytes, align: int) -> None:
    fleet = FakeFleet()
    kernel(f"{type_} a", fleet).submit(1, 1, (value,))
    assert fleet.task.launches[0].args == (Value(data, align),)


READ_ONLY = f32(4)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("parameters", "args", "message"),
    [
        ("float* x, int n", (f32(4),), r"kernel 'k' takes 2 arguments \(x, n\), but 1 were given"),
        ("", (1,), r"takes 0 arguments \(none\), but 1 were given"),
        ("float* x", f32(4), r"the arguments are a ndarray; pass a tuple"),
        (
            "const float* x",
            (np.zeros(4),),
            r"argument 1: parameter 'x' \(const float\*\) takes float32, but the array has float64; pass array.astype",
        ),
        (
            "int* x",
            (np.zeros(4, np.uint32),),
            r"takes int32, but the array has uint32; pass array.astype\(numpy.int32\)",
        ),
        ("unsigned long long* x", (np.zeros(4, np.int64),), "takes uint64"),
        ("__nv_bfloat16* x", (np.zeros(4, np.float32),), "takes bfloat16.*convert it with ml_dtypes.bfloat16"),
        ("float* x", (np.zeros(4, np.complex64),), r"pass array.view\(numpy.float32\)"),
        ("cuFloatComplex* x", (np.zeros(4, np.complex128),), "takes float32, but the array has complex128"),
        ("float4* x", (np.zeros(6, np.float32),), "takes groups of 4 numbers, but the array has 6"),
        ("float* x", (1.0,), "takes an array: float is not an array"),
        ("void* x", (np.array(["a"]),), "takes an array: dtype .* holds text"),
        ("float* x", ([1.0],), "takes an array: list is not an array; pass a NumPy array"),
        ("int n", (f32(4),), "takes int32, but got 4 of float32"),
        ("int n", (2.5,), r"takes a whole number; convert it with int\(\), but got 2.5"),
        ("unsigned char n", (256,), "takes a number from 0 to 255, but got 256"),
        ("unsigned n", (-1,), "takes a number from 0 to 4294967295, but got -1"),
        ("bool b", (2,), "takes a number from 0 to 1"),
        ("float a", (1e300,), "takes a number that f32 can hold"),
        ("float a", (1j,), "takes a real number"),
        ("float a", (np.float64(1),), r"takes float32, but got float64; pass numpy.float32\(value\)"),
        ("int n", (np.int64(1),), r"pass numpy.int32\(value\)"),
        ("int n", ("7",), "takes a number, but got str"),
        ("int n", (None,), "takes a number, but got NoneType"),
        ("float4 v", (1.0,), "takes a vector of 4 numbers"),
        ("float4 v", (np.zeros(3, np.float32),), "takes 4 of float32, but got 3 of float32"),
        (
            "Params p",
            (1,),
            "has a layout that only the compiler knows; pass a NumPy scalar with this layout, or its bytes",
        ),
        ("Params p", (b"",), "only the compiler knows"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_sent(parameters: str, args: Any, message: str) -> None:
    fleet = FakeFleet()
    for call in (kernel(parameters, fleet), kernel(parameters, fleet).submit):
        with pytest.raises(ArgumentError, match=message):
            call(1, 1, args)
    assert fleet.tasks == []


ROWS = np.broadcast_to(f32(4), (3, 4))
ROWS.flags.writeable = True
WHOLE = f32(8)


@pytest.mark.parametrize(
    ("parameters", "args", "message"),
    [
        ("float* x", (READ_ONLY,), r"'x' is read-only, but the kernel writes to it; pass a copy, or use .submit\(\)"),
        ("char* x", (b"abc",), "is read-only"),
        ("float* x", (ROWS,), r"several elements in one place \(strides \(0, 4\)\)"),
        ("float* x, float* y", (WHOLE[:5], WHOLE[3:]), "'y' overlaps another output"),
    ],
)
def test_a_call_refuses_outputs_that_it_can_not_write_back(parameters: str, args: Any, message: str) -> None:
    fleet = FakeFleet()
    with pytest.raises(ArgumentError, match=message):
        kernel(parameters, fleet)(1, 1, args)
    assert fleet.tasks == []
    kernel(parameters, fleet).submit(1, 1, args)
    assert len(fleet.tasks) == 1


def test_interleaved_outputs_do_not_overlap() -> None:
    kernel("float* x, float* y")(1, 1, (WHOLE[::2], WHOLE[1::2]))


def test_an_unreadable_signature_demands_numpy_types() -> None:
    fleet = FakeFleet()
    code = "template <typename... A> __global__ void k(A... a) {}"
    k = RawKernel(fleet, code, "k<float*, int>")
    with pytest.raises(ArgumentError, match=r"can not be read \(.*\), so a Python number has no type"):
        k.submit(1, 1, (f32(2), 1))
    with pytest.raises(ArgumentError, match="argument 1: list is not an array"):
        k.submit(1, 1, ([1], np.int32(1)))
    k.submit(1, 1, (f32(2), np.int32(1), None, f32(3)))
    assert fleet.task.outputs == ("arg0", "arg3")
    assert fleet.task.launches[0].args == (Pointer("arg0"), Value(b"\1\0\0\0", 4), Value(bytes(8), 8), Pointer("arg3"))


def test_options_make_a_copy() -> None:
    fleet = FakeFleet()
    k = kernel("int n", fleet)
    k.options(pool="team-a", labels={"a": "1"}).options(time_limit="30s", labels={"b": "2"}, name="mine").submit(
        1, 1, (1,)
    )
    options = fleet.task.options
    assert (options.pool, options.labels, options.time_limit, options.name) == (
        "team-a",
        {"a": "1", "b": "2"},
        30,
        "mine",
    )
    k.submit(1, 1, (1,))
    assert (fleet.task.options.pool, fleet.task.options.labels, fleet.task.options.name) == (None, {}, "k")
    with pytest.raises(TypeError, match="unknown option 'gpu'; the options are attempts, id, keep"):
        k.options(gpu=1)
    with pytest.raises(ValueError, match="'soon' is not a time; write a number with a unit"):
        k.options(time_limit="soon")


def test_map_keeps_the_order_and_knows_its_length() -> None:
    def run(buffers: dict[str, Any]) -> None:
        buffers["x"] += 1

    k = kernel("float* x", FakeFleet(run))
    results = k.map(1, 1, [(np.full(1, n, np.float32),) for n in range(10)])
    assert len(results) == 10
    assert [float(result[0]) for result in results] == [float(n + 1) for n in range(10)]
    with pytest.raises(TypeError, match="the inputs have none"):
        len(k.map(1, 1, iter([])))


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [((), 1, r"grid \(\)"), (1, 0, "block 0"), ((1, 1, 1, 1), 1, "grid"), ("x", 1, "one to three positive numbers")],
)
def test_grids_and_blocks_are_one_to_three_positive_numbers(grid: Any, block: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel("int n").submit(grid, block, (1,))


MODULE = r"""
extern "C"{

__global__ void test_sum(const float* x1, const float* x2, float* y, \
                         unsigned int N)
{
    unsigned int tid = blockDim.x * blockIdx.x + threadIdx.x;
    if (tid < N) { y[tid] = x1[tid] + x2[tid]; }
}

__global__ void test_multiply(const float* x1, const float* x2, float* y, \
                              unsigned int N)
{
    unsigned int tid = blockDim.x * blockIdx.x + threadIdx.x;
    if (tid < N) { y[tid] = x1[tid] * x2[tid]; }
}

}"""


def test_a_module_has_several_kernels() -> None:
    fleet = FakeFleet()
    module = RawModule(fleet, code=MODULE, options=("--use_fast_math",))
    x, y = f32(10, 10), np.zeros((10, 10), np.float32)
    for name in ("test_sum", "test_multiply"):
        module.get_function(name)((10,), (10,), (x, x, y, 10**2))
        assert fleet.task.program == Source(MODULE, ("--use_fast_math",))
        assert fleet.task.launches[0].entry == name
        assert fleet.task.launches[0].args[3] == Value(struct.pack("<I", 100), 4)


def test_a_module_returns_the_instances_of_its_templates() -> None:
    code = "template<typename T> __global__ void fx3(T* arr, int N) {}"
    module = RawModule(FakeFleet(), code=code, options=("-std=c++11",), name_expressions=["fx3<float>", "fx3<double>"])
    module.get_function("fx3<double>")(1, 10, (np.zeros(10), 10))
    with pytest.raises(ArgumentError, match="takes float32, but the array has float64"):
        module.get_function("fx3<float>")(1, 10, (np.zeros(10), 10))
    with pytest.raises(ValueError, match="'fx3<int>' is not in name_expressions, which has fx3<float>, fx3<double>"):
        module.get_function("fx3<int>")


def test_kernels_can_be_pickled(environment: None) -> None:
    with gf.Fleet() as fleet:
        x, y = f32(6), np.zeros(6, np.float32)
        raw = pickle.loads(pickle.dumps(fleet.RawKernel(ADD, "my_add").options(labels={"a": "b"})))
        assert raw.submit(1, 6, (x, x, y)).result().tolist() == (x + x).tolist()
        generated = pickle.loads(pickle.dumps(fleet.ElementwiseKernel("T x", "T y", "y = x * 2", "twice")))
        assert generated(x).tolist() == (x * 2).tolist()


def test_a_program_is_compiled_without_running_it(fleet: gf.Fleet) -> None:
    code = 'extern "C" __global__ void fill(float *y) { *y = 7; }  // compiled before it is used'
    fleet.RawModule(code=code).compile()
    kernel = fleet.RawKernel(code, "fill")
    kernel.compile()
    assert kernel(1, 1, (np.zeros(1, np.float32),)) == [7]
