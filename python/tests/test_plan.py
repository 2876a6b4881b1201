"""How lazy arrays become jobs. No fleet is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_fleet import FakeFleet

import gpufleet as gf
from gpufleet._plan import LAUNCHES_MAX, Plan, plan
from gpufleet._task import Input, Options, Ref, Source, Stored, Zeros

ADD = 'extern "C" __global__ void add(const float *x, float *y) {}\nextern "C" __global__ void clear(float *y) {}'


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


@pytest.fixture
def x() -> np.ndarray[Any, Any]:
    return np.arange(1000, dtype=np.float32)


def stages(made: Plan) -> list[list[str]]:
    """The entries of each job."""
    return [[launch.entry for launch in stage.task.launches] for stage in made.stages]


def source_of(made: Plan) -> str:
    (stage,) = made.stages
    assert isinstance(stage.task.program, Source)
    return stage.task.program.code


def test_a_chain_of_eight_generated_kernels_is_one_job_of_eight_launches(fleet: FakeFleet, x: Any) -> None:
    kernels = [fleet.ElementwiseKernel("T x", "T y", f"y = x + {i}", f"add{i}") for i in range(8)]
    value = kernels[0].lazy(x)
    for kernel in kernels[1:]:
        value = kernel.lazy(value)
    made = value.plan()
    assert stages(made) == [[f"add{i}_kernel" for i in range(8)]]
    assert made.input_bytes == x.nbytes
    task = made.stages[0].task
    assert len(task.outputs) == 1
    kinds = [type(buffer) for buffer in task.buffers.values()]
    assert kinds.count(Input) == 1
    assert kinds.count(Zeros) == 8
    assert not fleet.tasks


def test_a_kernel_that_is_used_twice_is_defined_once(fleet: FakeFleet, x: Any) -> None:
    double = fleet.ElementwiseKernel("T x", "T y", "y = 2 * x", "double_")
    made = double.lazy(double.lazy(x)).plan()
    assert stages(made) == [["double__kernel", "double__kernel"]]
    assert source_of(made).count("__global__") == 1


def test_kernels_with_the_same_name_and_other_code_are_told_apart(fleet: FakeFleet, x: Any) -> None:
    one = fleet.ElementwiseKernel("T x", "T y", "y = x + 1")
    two = fleet.ElementwiseKernel("T x", "T y", "y = x + 2")
    made = two.lazy(one.lazy(x)).plan()
    assert stages(made) == [["kernel_kernel", "kernel_kernel_2"]]


def test_a_diamond_runs_its_shared_part_once(fleet: FakeFleet, x: Any) -> None:
    square = fleet.ElementwiseKernel("T x", "T y", "y = x * x", "square")
    add = fleet.ElementwiseKernel("T a, T b", "T c", "c = a + b", "add")
    shared = square.lazy(x)
    made = add.lazy(square.lazy(shared), shared).plan()
    assert stages(made) == [["square_kernel", "square_kernel", "add_kernel"]]


def test_an_input_of_several_kernels_is_sent_once(fleet: FakeFleet, x: Any) -> None:
    add = fleet.ElementwiseKernel("T a, T b", "T c", "c = a + b", "add")
    made = add.lazy(add.lazy(x, x), x).plan()
    assert made.input_bytes == x.nbytes
    assert made.stages[0].task.shared == ("a",)


def test_other_options_are_another_job(fleet: FakeFleet, x: Any) -> None:
    add = fleet.ElementwiseKernel("T a", "T c", "c = a + 1", "add")
    made = add.options(pool="other").lazy(add.lazy(x)).plan()
    assert stages(made) == [["add_kernel"], ["add_kernel"]]
    assert [stage.task.options.pool for stage in made.stages] == [None, "other"]
    (ref,) = made.stages[1].refs.values()
    assert made.stages[0].makes[ref.key] == made.stages[0].task.outputs[0]


def test_kernels_of_one_module_share_a_job_and_others_do_not(fleet: FakeFleet, x: Any) -> None:
    module = fleet.RawModule(code=ADD)
    add, clear = module.get_function("add"), module.get_function("clear")
    other = fleet.RawKernel(ADD + "\n", "add")
    one = add.lazy((1,), (1,), (x, gf.zeros(1000, np.float32)))
    made = clear.lazy((1,), (1,), (one,)).plan()
    assert stages(made) == [["add", "clear"]]
    # `clear` writes into the array that `add` made.
    assert len(made.stages[0].task.buffers) == 2
    made = other.lazy((1,), (1,), (one, gf.zeros(1000, np.float32))).plan()
    assert stages(made) == [["add"], ["add"]]


def test_a_kernel_that_writes_to_an_array_which_others_need_gets_a_copy(fleet: FakeFleet, x: Any) -> None:
    module = fleet.RawModule(code=ADD)
    add, clear = module.get_function("add"), module.get_function("clear")
    first = add.lazy((1,), (1,), (x, gf.zeros(1000, np.float32)))
    cleared = clear.lazy((1,), (1,), (first,))
    made = add.lazy((1,), (1,), (first, cleared)).plan()
    assert stages(made) == [["add"], ["clear", "add"]]
    made = plan([first.ref.key, cleared.ref.key])
    assert stages(made) == [["add"], ["clear"]]
    assert [len(stage.wanted) for stage in made.stages] == [1, 1]


def test_a_caller_s_array_that_is_written_is_not_shared(fleet: FakeFleet, x: Any) -> None:
    module = fleet.RawModule(code=ADD)
    add, clear = module.get_function("add"), module.get_function("clear")
    made = add.lazy((1,), (1,), (x, clear.lazy((1,), (1,), (x,)))).plan()
    assert stages(made) == [["clear", "add"]]
    assert made.input_bytes == 2 * x.nbytes


def test_a_long_chain_is_split_at_the_bounds_of_a_job(fleet: FakeFleet, x: Any) -> None:
    clear = fleet.RawKernel(ADD, "clear")
    value = clear.lazy((1,), (1,), (x,))
    for _ in range(LAUNCHES_MAX):
        value = clear.lazy((1,), (1,), (value,))
    assert [len(each) for each in stages(value.plan())] == [LAUNCHES_MAX, 1]


def test_types_and_preambles_of_joined_kernels_do_not_meet(fleet: FakeFleet, x: Any) -> None:
    one = fleet.ElementwiseKernel("T x", "T y", "y = f(x)", "one", preamble="__device__ float f(float x) { return x; }")
    two = fleet.ElementwiseKernel("T x", "T y", "y = f(x)", "two", preamble="__device__ int f(int x) { return x; }")
    add = fleet.ElementwiseKernel("A a, B b", "A c", "c = a + b", "add")
    made = add.lazy(one.lazy(x), two.lazy(x.astype(np.int32))).plan()
    assert len(made.stages) == 1
    assert source_of(made).count("namespace _") == 3


def test_headers_of_preambles_come_first_and_once(fleet: FakeFleet, x: Any) -> None:
    preamble = "#include <cuda_fp16.h>\n__device__ float half_of(float x) { return x / 2; }"
    one = fleet.ElementwiseKernel("T x", "T y", "y = half_of(x)", "one", preamble=preamble)
    two = fleet.ElementwiseKernel("T x", "T y", "y = half_of(x) + 1", "two", preamble=preamble)
    source = source_of(two.lazy(one.lazy(x)).plan())
    assert source.count("#include <cuda_fp16.h>") == 1
    assert source.index("#include <cuda_fp16.h>") < source.index("namespace")


def test_a_preamble_with_macros_is_a_job_of_its_own(fleet: FakeFleet, x: Any) -> None:
    one = fleet.ElementwiseKernel("T x", "T y", "y = x * K", "one", preamble="#define K 2")
    made = one.lazy(one.lazy(x)).plan()
    assert len(made.stages) == 1, "the same code is the same program"
    two = fleet.ElementwiseKernel("T x", "T y", "y = x + 1", "two")
    assert len(two.lazy(one.lazy(x)).plan().stages) == 2


def test_an_array_without_elements_needs_no_job(fleet: FakeFleet) -> None:
    add = fleet.ElementwiseKernel("T a", "T c", "c = a + 1", "add")
    assert add.lazy(np.empty((0, 3), np.float32)).shape == (0, 3)


def test_shapes_and_dtypes_are_known(fleet: FakeFleet, x: Any) -> None:
    add = fleet.ElementwiseKernel("T a, T b", "complex64 c", "c = a + b", "add")
    norm = fleet.ReductionKernel("T x", "float32 y", "abs(x)", "a + b", "y = a", "0", "norm")
    value = add.lazy(x.reshape(10, 100), x[:100])
    assert (value.shape, value.dtype, value.ndim, value.size) == ((10, 100), np.complex64, 2, 1000)
    assert norm.lazy(value, axis=1).shape == (10,)
    assert len(norm.lazy(value, axis=1).plan().stages) == 1


def test_the_catalog_s_shapes_are_known(fleet: FakeFleet) -> None:
    a = np.ones((3, 4), np.float32)
    product = gf.CatalogKernel(fleet, "matmul_tiled", Options()).lazy(a, np.ones((4, 5), np.float32))
    assert product.shape == (3, 5)
    assert product.plan().stages[0].task.outputs == (product.ref.name,)


def test_stored_arrays_stay_where_they_are(fleet: FakeFleet) -> None:
    remote = gf.RemoteArray(Stored("sha256:" + "0" * 64, (8,), "f32"))
    add = fleet.ElementwiseKernel("T a, T b", "T c", "c = a + b", "add")
    task = add.lazy(add.lazy(remote, remote), remote).plan().stages[0].task
    assert [buffer for buffer in task.buffers.values() if isinstance(buffer, Stored)] == [remote.stored]


def test_a_plan_is_printed(fleet: FakeFleet, x: Any) -> None:
    add = fleet.ElementwiseKernel("T a", "T c", "c = a + 1", "add")
    value = add.options(pool="other").lazy(add.lazy(add.lazy(x)))
    assert repr(value.plan()).splitlines() == [
        "job 1: 2x add_kernel; 4,000 bytes of inputs; returns c_2",
        "job 2: add_kernel; 1 arrays of earlier jobs; returns c",
    ]
    assert "float32[1000]" in repr(value)


def test_a_lazy_array_is_no_numpy_array(fleet: FakeFleet, x: Any) -> None:
    value = fleet.ElementwiseKernel("T a", "T c", "c = a + 1", "add").lazy(x)
    with pytest.raises(TypeError, match=r"call compute\(\) first"):
        np.asarray(value)


def test_a_reference_is_never_sent(fleet: FakeFleet, x: Any) -> None:
    value = fleet.ElementwiseKernel("T a", "T c", "c = a + 1", "add").lazy(x)
    assert isinstance(value.ref, Ref)
