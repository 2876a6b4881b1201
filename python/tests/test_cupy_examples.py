"""The examples of CuPy's user guide for kernels, on the emulated device, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import gpufleet as gf


def f32(*shape: int) -> Any:
    return np.arange(float(np.prod(shape)), dtype=np.float32).reshape(shape)


SQUARED = np.array([[0, 0, 0, 0, 0], [25, 25, 25, 25, 25]], np.float32)


def test_squared_diff(fleet: gf.Fleet) -> None:
    squared_diff = fleet.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = (x - y) * (x - y)", "squared_diff")
    x, y = f32(2, 5), f32(5)
    assert_array_equal(squared_diff(x, y), SQUARED, strict=True)
    assert_array_equal(squared_diff(x, 5), (x - 5) ** 2, strict=True)
    z = np.empty((2, 5), np.float32)
    assert squared_diff(x, y, z) is z
    assert_array_equal(z, SQUARED)


@pytest.mark.parametrize("operation", ["z = (x - y) * (x - y)", "\n    T diff = x - y;\n    z = diff * diff;\n"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.uint64])
def test_squared_diff_generic(fleet: gf.Fleet, operation: str, dtype: Any) -> None:
    kernel = fleet.ElementwiseKernel("T x, T y", "T z", operation, "squared_diff_generic")
    x, y = np.arange(10, dtype=dtype).reshape(2, 5), np.arange(5, dtype=dtype)
    assert_array_equal(kernel(x, y), (x - y) ** 2, strict=True)


def test_squared_diff_super_generic(fleet: gf.Fleet) -> None:
    kernel = fleet.ElementwiseKernel("X x, Y y", "Z z", "z = (x - y) * (x - y)", "squared_diff_super_generic")
    x, y = np.arange(10).reshape(2, 5), f32(5)
    with pytest.raises(TypeError, match="the inputs do not tell the type Z of 'z'; pass the output as an argument"):
        kernel(x, y)
    assert_array_equal(kernel(x, y, np.empty((2, 5))), (x - y) ** 2)


def test_add_reverse(fleet: gf.Fleet) -> None:
    add_reverse = fleet.ElementwiseKernel("T x, raw T y", "T z", "z = x + y[_ind.size() - i - 1]", "add_reverse")
    x, y = f32(12), np.asfortranarray(f32(4, 3)) * 2
    assert_array_equal(add_reverse(x, y), x + y.reshape(-1)[::-1], strict=True)


def test_all_arrays_raw(fleet: gf.Fleet) -> None:
    kernel = fleet.ElementwiseKernel("raw T x", "raw T y", "y[n - 1 - i] = x[i] * 2", "reverse")
    assert_array_equal(kernel(f32(6), size=6), f32(6)[::-1] * 2)


def test_l2norm(fleet: gf.Fleet) -> None:
    l2norm = fleet.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "l2norm")
    x = f32(2, 5)
    assert_allclose(l2norm(x, axis=1), np.linalg.norm(x, axis=1), rtol=1e-6)
    assert l2norm(x, axis=1).dtype == np.float32
    assert_allclose(l2norm(x), np.linalg.norm(x), rtol=1e-6)


ADD = r"""
extern "C" __global__
void my_add(const float* x1, const float* x2, float* y) {
    int tid = blockDim.x * blockIdx.x + threadIdx.x;
    y[tid] = x1[tid] + x2[tid];
}
"""


def test_my_add(fleet: gf.Fleet) -> None:
    x1, x2, y = f32(5, 5), f32(5, 5), np.zeros((5, 5), np.float32)
    fleet.RawKernel(ADD, "my_add")((5,), (5,), (x1, x2, y))
    assert_array_equal(y, x1 + x2)


def test_complex_numbers(fleet: gf.Fleet) -> None:
    kernel = fleet.RawKernel(
        r"""
        #include <cupy/complex.cuh>
        extern "C" __global__
        void my_func(const complex<float>* x1, const complex<float>* x2,
                     complex<float>* y, float a) {
            int tid = blockDim.x * blockIdx.x + threadIdx.x;
            y[tid] = x1[tid] + a * x2[tid];
        }
        """,
        "my_func",
    )
    x1 = f32(5, 5).astype(np.complex64)
    x2 = 1j * x1
    y = np.zeros((5, 5), np.complex64)
    kernel((5,), (5,), (x1, x2, y, np.float32(2.0)))
    assert_array_equal(y, x1 + 2 * x2)


COMPLEX_FUNCTIONS = {
    "exp": np.exp,
    "log": np.log,
    "log10": np.log10,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "conj": np.conj,
}


def test_functions_of_complex_numbers(fleet: gf.Fleet) -> None:
    lines = "\n".join(f"y[{n} * 8 + i] = {name}(z);" for n, name in enumerate(COMPLEX_FUNCTIONS))
    code = f"""
        #include <cupy/complex.cuh>
        extern "C" __global__ void apply(const complex<double>* x, complex<double>* y) {{
            int i = threadIdx.x;
            complex<double> z = x[i];
            {lines}
        }}
    """
    x = np.array([0.5 + 0.25j, -0.5 + 0.25j, 2 + 3j, -2 - 3j, 1e-3j, -4 + 1e-9j, 30 + 1j, 0.25 - 2j])
    y = np.zeros((len(COMPLEX_FUNCTIONS), 8), np.complex128)
    fleet.RawKernel(code, "apply")(1, 8, (x, y))
    for got, (name, function) in zip(y, COMPLEX_FUNCTIONS.items(), strict=True):
        np.testing.assert_allclose(got, function(x), rtol=1e-9, atol=1e-12, err_msg=name)


def test_complex_numbers_of_two_precisions_and_in_thrusts_namespace(fleet: gf.Fleet) -> None:
    code = r"""
        #include <cupy/complex.cuh>
        extern "C" __global__ void mix(const complex<float>* x, complex<double>* y) {
            complex<float> z = x[0];
            complex<double> w = z;
            y[0] = w * z + 1.0;
            y[1] = thrust::exp(z) + thrust::polar(2.0, 0.5);
            y[2] = pow(w, 3) - w * w * w;
            y[3] = 2.0 * pow(2.0, w) / w;
            z = w;
            y[4] = proj(complex<double>(-INFINITY, -1.0)) == complex<double>(INFINITY, -0.0) ? abs(z) : -1;
            y[5] = sqrt(complex<float>(-4.0f, 0.0f));
        }
    """.replace("INFINITY", "__longlong_as_double(0x7ff0000000000000LL)")
    x, y = np.array([1 + 2j], np.complex64), np.zeros(6, np.complex128)
    fleet.RawKernel(code, "mix")(1, 1, (x, y))
    z = 1 + 2j
    expected = [z * z + 1, np.exp(z) + 2 * np.exp(0.5j), 0, 2 * 2**z / z, abs(z), 2j]
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-12)


def test_a_structure_by_value(fleet: gf.Fleet) -> None:
    kernel = fleet.RawKernel(
        r"""
        struct float5x5 { float v[25]; };
        extern "C" __global__ void diagonal(float5x5 m, float3 s, float* y) {
            y[threadIdx.x] = m.v[threadIdx.x * 6] + s.x * s.y * s.z;
        }
        """,
        "diagonal",
    )
    matrix = f32(25).view(np.dtype({"names": ["dummy"], "formats": [(np.float32, (5, 5))]}))[0]
    y = kernel(1, 5, (matrix, np.array([1, 2, 3], np.float32), np.zeros(5, np.float32)))
    assert_array_equal(y, np.arange(0, 25, 6) + 6.0)


MODULE = r"""
extern "C"{

__global__ void test_sum(const float* x1, const float* x2, float* y, \
                         unsigned int N)
{
    unsigned int tid = blockDim.x * blockIdx.x + threadIdx.x;
    if (tid < N)
    {
        y[tid] = x1[tid] + x2[tid];
    }
}

__global__ void test_multiply(const float* x1, const float* x2, float* y, \
                              unsigned int N)
{
    unsigned int tid = blockDim.x * blockIdx.x + threadIdx.x;
    if (tid < N)
    {
        y[tid] = x1[tid] * x2[tid];
    }
}

}"""


def test_a_raw_module(fleet: gf.Fleet) -> None:
    module = fleet.RawModule(code=MODULE)
    n = 10
    x1, x2, y = f32(n, n), np.ones((n, n), np.float32), np.zeros((n, n), np.float32)
    module.get_function("test_sum")((n,), (n,), (x1, x2, y, n**2))
    assert_allclose(y, x1 + x2)
    module.get_function("test_multiply")((n,), (n,), (x1, x2, y, n**2))
    assert_allclose(y, x1 * x2)


def test_template_instances(fleet: gf.Fleet) -> None:
    code = r"""
    template<typename T>
    __global__ void fx3(T* arr, int N) {
        unsigned int tid = blockIdx.x * blockDim.x + threadIdx.x;
        if (tid < N) {
            arr[tid] = arr[tid] * 3;
        }
    }
    """
    names = ["fx3<float>", "fx3<double>"]
    module = fleet.RawModule(code=code, options=("-std=c++11",), name_expressions=names)
    for name, dtype in zip(names, (np.float32, np.float64), strict=True):
        a = np.arange(10, dtype=dtype)
        module.get_function(name)((1,), (10,), (a, 10))
        assert_array_equal(a, np.arange(10, dtype=dtype) * 3, strict=True)
