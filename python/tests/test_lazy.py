"""Lazy arrays, and jobs that need others, on a fleet."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest

import gpufleet as gf
from gpufleet._dependent import Dependent

RAW = r"""
extern "C" __global__ void scale(float *x, float factor, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factor;
}
extern "C" __global__ void add(const float *x, float *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += x[i];
}
"""
N = 3000
GRID, BLOCK = (12,), (256,)


@pytest.fixture
def x() -> np.ndarray[Any, Any]:
    return np.linspace(0, 1, N, dtype=np.float32)


def test_a_chain_of_generated_kernels_is_one_job(fleet: gf.Fleet, x: Any) -> None:
    value = x
    for i in range(8):
        value = fleet.ElementwiseKernel("T x", "T y", f"y = x * x + T({i})", f"step{i}").lazy(value)
    expected = x
    for i in range(8):
        expected = expected * expected + np.float32(i)
    future = value.submit()
    assert np.allclose(future.result(), expected, rtol=1e-5)
    assert future.timings is not None
    assert len(future.timings.launches) == 8


def test_kernels_of_all_forms_and_types_join(fleet: gf.Fleet, x: Any) -> None:
    root = fleet.ElementwiseKernel("T x", "complex64 y", "y = complex<float>(0, x)", "turn", preamble="// one")
    total = fleet.ReductionKernel("complex64 x", "complex64 y", "x * x", "a + b", "y = a", "0", "total")
    half = fleet.ElementwiseKernel("T x", "float16 y", "y = x.real() / 100", "half_")
    value = half.lazy(total.lazy(root.lazy(x)))
    assert len(value.plan().stages) == 1
    assert (value.dtype, value.shape) == (np.float16, ())
    assert np.allclose(value.compute(), np.sum((1j * x.astype(np.complex64)) ** 2).real / 100, rtol=1e-2)


def test_kernels_of_a_module_work_in_place(fleet: gf.Fleet, x: Any) -> None:
    module = fleet.RawModule(code=RAW)
    scale, add = module.get_function("scale"), module.get_function("add")
    doubled = scale.lazy(GRID, BLOCK, (x, 2.0, N))
    both = add.lazy(GRID, BLOCK, (doubled, scale.lazy(GRID, BLOCK, (doubled, 3.0, N)), N))
    assert [len(stage.task.launches) for stage in both.plan().stages] == [1, 2]
    assert np.allclose(both.compute(), 8 * x)
    assert x[1] == np.linspace(0, 1, N, dtype=np.float32)[1]


def test_an_output_that_starts_as_zeros_is_not_sent(fleet: gf.Fleet, x: Any) -> None:
    add = fleet.RawKernel(RAW, "add")
    value = add.lazy(GRID, BLOCK, (x, gf.zeros(N, np.float32), N))
    assert value.plan().input_bytes == x.nbytes
    assert np.array_equal(value.compute(), x)
    assert np.array_equal(add.submit(GRID, BLOCK, (x, gf.zeros(N, np.float32), N)).result(), x)


def test_different_programs_are_jobs_one_after_the_other(fleet: gf.Fleet, x: Any) -> None:
    saxpy = fleet.kernel("saxpy")
    square = fleet.ElementwiseKernel("T x", "T y", "y = x * x", "square")
    value = square.lazy(saxpy.lazy(2.0, square.lazy(x), x))
    assert len(value.plan().stages) == 3
    future = value.submit()
    assert np.allclose(future.result(), (2 * x * x + x) ** 2)
    assert len(future.job_id) == 36


def test_shapes_of_the_catalog_pass_from_kernel_to_kernel(fleet: gf.Fleet) -> None:
    matmul, transpose = fleet.kernel("matmul_tiled"), fleet.kernel("transpose")
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    double = fleet.ElementwiseKernel("T x", "T y", "y = 2 * x", "double_")
    assert np.array_equal(matmul.lazy(a, transpose.lazy(double.lazy(a))).compute(), a @ (2 * a).T)


def test_a_large_array_between_jobs_stays_in_the_store(fleet: gf.Fleet) -> None:
    x = np.ones(1 << 20, np.float32)
    saxpy, square = fleet.kernel("saxpy"), fleet.ElementwiseKernel("T x", "T y", "y = x * x", "square")
    value = square.lazy(saxpy.lazy(2.0, fleet.put(x), fleet.put(x)))
    first, _ = value.plan().stages
    futures = fleet._submit_plan(value.plan())
    outputs = [future.result() for future in futures]
    assert isinstance(next(iter(outputs[0].values())), gf.RemoteArray), "the first job's output is not here"
    assert first.task.outputs
    assert np.array_equal(value.compute(), 9 * x)


def test_arrays_are_computed_together(fleet: gf.Fleet, x: Any) -> None:
    square = fleet.ElementwiseKernel("T x", "T y", "y = x * x", "square")
    total = fleet.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "total")
    saxpy = fleet.kernel("saxpy")
    squares = square.lazy(x)
    found = fleet.compute(squares, total.lazy(squares), saxpy.lazy(1.0, squares, x), squares)
    assert np.allclose(found[0], x * x)
    assert np.allclose(found[1], (x * x).sum(), rtol=1e-4)
    assert np.allclose(found[2], x * x + x)
    assert np.array_equal(found[3], found[0])


def test_any_kernel_takes_a_lazy_array(fleet: gf.Fleet, x: Any) -> None:
    square = fleet.ElementwiseKernel("T x", "T y", "y = x * x", "square")
    assert np.allclose(square(square.lazy(x)), x**4)
    assert np.allclose(fleet.kernel("saxpy")(2.0, square.lazy(x), x), 2 * x * x + x)
    assert [np.allclose(y, x**4) for y in square.map([square.lazy(x)] * 3)] == [True] * 3
    target = x.copy()
    fleet.RawKernel(RAW, "add")(GRID, BLOCK, (square.lazy(x), target, N))
    assert np.allclose(target, x * x + x)


def test_a_failure_ends_the_jobs_that_need_it(fleet: gf.Fleet, x: Any) -> None:
    wrong = fleet.RawKernel('extern "C" __global__ void wrong(float *x) { x[0] = undeclared; }', "wrong")
    with pytest.raises(gf.CompileError) as caught:
        fleet.kernel("saxpy").lazy(1.0, wrong.lazy(1, 1, (x,)), x).compute()
    assert "undeclared" in caught.value.diagnostics[0].message


def test_a_job_that_fails_in_a_joined_source_shows_its_code(fleet: gf.Fleet, x: Any) -> None:
    fine = fleet.ElementwiseKernel("T x", "T y", "y = x * x", "fine")
    wrong = fleet.ElementwiseKernel("T x", "T y", "y = undeclared", "wrong")
    with pytest.raises(gf.CompileError, match="undeclared"):
        wrong.lazy(fine.lazy(x)).compute()


def test_futures_are_arguments(fleet: gf.Fleet, x: Any) -> None:
    saxpy, square = fleet.kernel("saxpy"), fleet.ElementwiseKernel("T x", "T y", "y = x * x", "square")
    first = square.submit(x)
    second = saxpy.submit(a=2.0, x=first, y=first)
    third = fleet.RawKernel(RAW, "scale").submit(GRID, BLOCK, (second, 0.5, N))
    assert np.allclose(third.result(60), 1.5 * x * x)
    assert np.allclose(saxpy(2.0, first, first), 3 * x * x)
    assert np.allclose(square(first), x**4)
    assert third.timings is not None
    assert third.ran_on is not None
    assert third.job_id != second.job_id
    with pytest.raises(TypeError, match=r"pass future.result\(\)"):
        square.lazy(first)


def test_leaving_the_block_waits_for_jobs_that_need_others(environment: None, x: Any) -> None:
    with gf.Fleet() as fleet:
        square = fleet.ElementwiseKernel("T x", "T y", "y = x * x", "square")
        futures = [square.submit(x)]
        for _ in range(4):
            futures.append(square.submit(futures[-1]))
    assert all(future.done() and future.exception() is None for future in futures)


def test_cancelling_a_chain_cancels_what_it_needs(fleet: gf.Fleet, x: Any) -> None:
    slow = fleet.kernel("monte_carlo_pi").lazy(10**15)
    chain = fleet.ElementwiseKernel("T x", "T y", "y = x + 1", "next_").lazy(slow).submit()
    with pytest.raises(gf.GpufleetError, match="no id yet"):
        chain.job_id  # noqa: B018
    assert "a job that needs others" in repr(chain)
    assert isinstance(chain, Dependent)
    (need,) = chain._needs
    assert chain.cancel()
    assert chain.cancelled()
    assert need.cancelled()
    with pytest.raises(CancelledError):
        chain.result()


def test_cancelling_a_job_leaves_the_futures_of_others(fleet: gf.Fleet, x: Any) -> None:
    slow = fleet.kernel("monte_carlo_pi").submit(10**15)
    double = fleet.ElementwiseKernel("T x", "T y", "y = x + x", "double_")
    assert double.submit(slow).cancel()
    assert not slow.done()
    other = double.submit(slow)
    slow.cancel()
    with pytest.raises(CancelledError):
        other.result(60)


def test_a_hundred_jobs_that_need_one_run_once_it_has_ended(fleet: gf.Fleet, x: Any) -> None:
    square = fleet.ElementwiseKernel("T x", "T y", "y = x * x", "square")
    first = square.submit(x)
    ended = threading.Barrier(2)
    others = [square.submit(first) for _ in range(100)]
    others[-1].add_done_callback(lambda _: ended.wait(60))
    ended.wait(60)
    assert all(np.allclose(future.result(60), x**4) for future in others)
