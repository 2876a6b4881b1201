"""Kernels in Python: what is sent for them, and ten of them on the emulated device against NumPy."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from fake_fleet import FakeFleet
from numba import cuda
from numpy.testing import assert_allclose, assert_array_equal

import gpufleet as gf
from gpufleet._task import Pointer, Ptx, Value

# Numba compiles these functions, so they have no annotations.
# mypy: disable-error-code="no-untyped-def, misc"


def f32(*shape: int) -> Any:
    return np.arange(float(np.prod(shape)), dtype=np.float32).reshape(shape)


def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


SAXPY = "f4, f4[::1], f4[::1]"


def word(value: int) -> Value:
    return Value(struct.pack("<q", value), 8)


def test_an_array_is_seven_parameters() -> None:
    fleet = FakeFleet()
    kernel = fleet.numba(saxpy, SAXPY, outputs=[2])
    kernel.submit(1, 32, (2.0, f32(3), f32(3)))
    (launch,) = fleet.task.launches
    null, items, itemsize = word(0), word(3), word(4)
    assert launch.args[0] == Value(struct.pack("<f", 2), 4)
    assert launch.args[1:8] == (null, null, items, itemsize, Pointer("x"), word(3), word(4))
    assert launch.args[12] == Pointer("y")
    assert len(launch.args) == 15
    assert isinstance(fleet.task.program, Ptx)
    assert f".entry {launch.entry}(" in fleet.task.program.text
    assert (fleet.task.outputs, fleet.task.options.name, kernel.name) == (("y",), "saxpy", "saxpy")
    assert fleet.task.shared == (), "a kernel may use an array that does not come back as scratch memory"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((2.0, f32(3)), r"kernel 'saxpy' takes a tuple of 3 arguments \(a, x, y\)"),
        ((2.0, np.zeros(3), f32(3)), "parameter 'x' .* takes float32, but the array has float64"),
        ((2.0, f32(3, 1), f32(3)), "takes 1 dimensions, but the array has 2; reshape it"),
        ((2.0, 1.0, f32(3)), "takes an array: float is not an array"),
        ((f32(3), f32(3), f32(3)), "takes float32, but got 3 of float32"),
    ],
)
def test_wrong_arguments_are_refused(args: tuple[object, ...], message: str) -> None:
    fleet = FakeFleet()
    with pytest.raises(TypeError, match=message):
        fleet.numba(saxpy, SAXPY).submit(1, 32, args)
    assert fleet.tasks == []


@pytest.mark.parametrize(
    ("signature", "outputs", "message"),
    [
        ("f4, f4[::1]", None, "has 3 parameters, but the signature has 2"),
        ("f4, f4[::1], f4[::1]", [0], "outputs: argument 0 is not an array"),
        ("f4, f4[::1], f4[::1,:]", None, "'y': arrays are sent in C order"),
        ("f4, f4[::1], nonsense", None, "is not a signature of Numba types, such as 'f4, f4"),
        ("f4, f4[::1], string", None, "which is no number or array of numbers|not a signature"),
    ],
)
def test_wrong_signatures_are_refused(signature: str, outputs: list[int] | None, message: str) -> None:
    def loose(a, x, y):
        pass

    with pytest.raises(gf.InvalidJob, match=message):
        FakeFleet().numba(loose, signature, outputs=outputs)


def test_a_device_function_must_be_inline() -> None:
    @cuda.jit(device=True)
    def one():
        return 1

    def kernel(x):
        x[0] = one()

    with pytest.raises(gf.InvalidJob, match=r'declare that function with @cuda.jit.device=True, inline="always"'):
        FakeFleet().numba(kernel, "i4[::1]")


def test_saxpy(fleet: gf.Fleet) -> None:
    x, y = f32(1000), np.ones(1000, np.float32)
    fleet.numba(saxpy, SAXPY, outputs=[2])(4, 256, (2.0, x, y))
    assert_array_equal(y, 2 * x + 1)


def test_a_matrix_product(fleet: gf.Fleet) -> None:
    def product(a, b, c):
        row, column = cuda.grid(2)
        if row < c.shape[0] and column < c.shape[1]:
            total = np.float32(0)
            for k in range(a.shape[1]):
                total += a[row, k] * b[k, column]
            c[row, column] = total

    a, b = f32(6, 7), f32(7, 5)
    c = np.zeros((6, 5), np.float32)
    fleet.numba(product, "f4[:, ::1], f4[:, ::1], f4[:, ::1]", outputs=[2])((1, 1), (8, 8), (a, b, c))
    assert_allclose(c, a @ b)


def test_views_in_any_order(fleet: gf.Fleet) -> None:
    def transpose(x, y):
        i, j = cuda.grid(2)
        if i < x.shape[0] and j < x.shape[1]:
            y[j, i] = x[i, j]

    x = f32(8, 6)[::-1, ::2].T
    y = fleet.numba(transpose, "f8[:, :], f8[:, :]", outputs=[1]).submit(
        (1, 1), (8, 8), (x.astype(np.float64), np.zeros((8, 3)))
    )
    assert_array_equal(y.result(), x.T)


def test_a_reduction_in_shared_memory(fleet: gf.Fleet) -> None:
    def block_sum(x, sums):
        shared = cuda.shared.array(64, np.float64)
        thread = cuda.threadIdx.x
        shared[thread] = x[cuda.grid(1)]
        cuda.syncthreads()
        half = 32
        while half > 0:
            if thread < half:
                shared[thread] += shared[thread + half]
            cuda.syncthreads()
            half //= 2
        if thread == 0:
            sums[cuda.blockIdx.x] = shared[0]

    x = np.arange(256.0)
    sums = fleet.numba(block_sum, "f8[::1], f8[::1]", outputs=[1])(4, 64, (x, np.zeros(4)))
    assert_array_equal(sums, x.reshape(4, 64).sum(1))


def test_a_histogram_with_atomics(fleet: gf.Fleet) -> None:
    def histogram(x, counts):
        i = cuda.grid(1)
        if i < x.size:
            cuda.atomic.add(counts, x[i], 1)

    x = (np.arange(500) * 7 % 10).astype(np.uint8)
    counts = fleet.numba(histogram, "u1[::1], i4[::1]", outputs=[1])(2, 256, (x, np.zeros(10, np.int32)))
    assert_array_equal(counts, np.bincount(x))


def test_math_functions(fleet: gf.Fleet) -> None:
    def functions(x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = math.sqrt(x[i]) + math.exp(-x[i]) * math.sin(x[i])

    x = np.linspace(0, 4, 100)
    y = fleet.numba(functions, "f8[::1], f8[::1]", outputs=[1])(1, 128, (x, np.zeros(100)))
    assert_allclose(y, np.sqrt(x) + np.exp(-x) * np.sin(x), rtol=1e-12)


def test_a_device_function(fleet: gf.Fleet) -> None:
    @cuda.jit(device=True, inline="always")
    def clamp(value, low, high):
        return min(max(value, low), high)

    @cuda.jit
    def clamped(x, low, high):
        i = cuda.grid(1)
        if i < x.size:
            x[i] = clamp(x[i], low, high)

    x = np.arange(-10, 10, dtype=np.int64)
    assert_array_equal(fleet.numba(clamped, "i8[::1], i8, i8")(1, 32, (x.copy(), -3, 4)), x.clip(-3, 4))


def test_mandelbrot(fleet: gf.Fleet) -> None:
    def mandelbrot(counts, size):
        row, column = cuda.grid(2)
        if row < size and column < size:
            c = complex(column * 3.0 / size - 2.0, row * 2.0 / size - 1.0)
            z = 0j
            steps = 0
            while steps < 20 and z.real * z.real + z.imag * z.imag <= 4:
                z = z * z + c
                steps += 1
            counts[row, column] = steps

    counts = fleet.numba(mandelbrot, "i4[:, ::1], i4")((2, 2), (8, 8), (np.zeros((16, 16), np.int32), 16))
    rows, columns = np.mgrid[:16, :16]
    c = columns * 3 / 16 - 2 + 1j * (rows * 2 / 16 - 1)
    z, expected = np.zeros_like(c), np.zeros((16, 16), np.int32)
    for _ in range(20):
        inside = np.abs(z) <= 2
        expected += inside
        z = np.where(inside, z * z + c, z)
    assert_array_equal(counts, expected)


def test_complex_arrays(fleet: gf.Fleet) -> None:
    def rotate(z, by):
        i = cuda.grid(1)
        if i < z.size:
            z[i] *= by

    z = np.arange(10) + 1j
    assert_allclose(fleet.numba(rotate, "c16[::1], c16")(1, 32, (z.copy(), 1j)), z * 1j)


def test_a_grid_stride_loop_over_three_dimensions(fleet: gf.Fleet) -> None:
    def scale(x, by):
        start, stride = cuda.grid(1), cuda.gridsize(1)
        for i in range(start, x.shape[0] * x.shape[1] * x.shape[2], stride):
            plane, rest = divmod(i, x.shape[1] * x.shape[2])
            x[plane, rest // x.shape[2], rest % x.shape[2]] *= by

    x = f32(3, 4, 5)
    assert_array_equal(fleet.numba(scale, "f4[:, :, ::1], f4")(2, 8, (x.copy(), 3)), x * 3)
