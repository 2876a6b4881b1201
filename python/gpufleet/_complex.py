"""Complex numbers in CUDA C++, for kernels that were written for CuPy's `complex<T>`.

NVRTC has no `<complex>` of its own, and workers have no CuPy, so the text travels with the code.
"""

from __future__ import annotations

import re

__all__ = ["COMPLEX", "with_complex"]

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]cupy/complex\.cuh[>\"][^\n]*$", re.MULTILINE)

COMPLEX = """\
template <typename T> struct alignas(2 * sizeof(T)) complex {
    T _real, _imag;
    complex() = default;
    __host__ __device__ constexpr complex(T real, T imag = T()) : _real(real), _imag(imag) {}
    template <typename U> __host__ __device__ explicit constexpr complex(const complex<U> &z)
        : _real(T(z._real)), _imag(T(z._imag)) {}
    __host__ __device__ constexpr T real() const { return _real; }
    __host__ __device__ constexpr T imag() const { return _imag; }
    __host__ __device__ void real(T value) { _real = value; }
    __host__ __device__ void imag(T value) { _imag = value; }
    __host__ __device__ friend complex operator+(const complex &a) { return a; }
    __host__ __device__ friend complex operator-(const complex &a) { return complex(-a._real, -a._imag); }
    __host__ __device__ friend complex operator+(const complex &a, const complex &b) {
        return complex(a._real + b._real, a._imag + b._imag);
    }
    __host__ __device__ friend complex operator-(const complex &a, const complex &b) {
        return complex(a._real - b._real, a._imag - b._imag);
    }
    __host__ __device__ friend complex operator*(const complex &a, const complex &b) {
        return complex(a._real * b._real - a._imag * b._imag, a._real * b._imag + a._imag * b._real);
    }
    __host__ __device__ friend complex operator/(const complex &a, const complex &b) {
        if (fabs(b._real) >= fabs(b._imag)) {
            T ratio = b._imag / b._real, scale = T(1) / (b._real + b._imag * ratio);
            return complex((a._real + a._imag * ratio) * scale, (a._imag - a._real * ratio) * scale);
        }
        T ratio = b._real / b._imag, scale = T(1) / (b._real * ratio + b._imag);
        return complex((a._real * ratio + a._imag) * scale, (a._imag * ratio - a._real) * scale);
    }
    __host__ __device__ friend bool operator==(const complex &a, const complex &b) {
        return a._real == b._real && a._imag == b._imag;
    }
    __host__ __device__ friend bool operator!=(const complex &a, const complex &b) { return !(a == b); }
    __host__ __device__ complex &operator+=(const complex &b) { return *this = *this + b; }
    __host__ __device__ complex &operator-=(const complex &b) { return *this = *this - b; }
    __host__ __device__ complex &operator*=(const complex &b) { return *this = *this * b; }
    __host__ __device__ complex &operator/=(const complex &b) { return *this = *this / b; }
};
template <typename T> __host__ __device__ T real(const complex<T> &z) { return z._real; }
template <typename T> __host__ __device__ T imag(const complex<T> &z) { return z._imag; }
template <typename T> __host__ __device__ T norm(const complex<T> &z) { return z._real * z._real + z._imag * z._imag; }
template <typename T> __host__ __device__ T abs(const complex<T> &z) { return hypot(z._real, z._imag); }
template <typename T> __host__ __device__ T arg(const complex<T> &z) { return atan2(z._imag, z._real); }
template <typename T> __host__ __device__ complex<T> conj(const complex<T> &z) { return complex<T>(z._real, -z._imag); }
"""


def with_complex(code: str) -> str:
    """Replaces `#include <cupy/complex.cuh>` by the text above. The lines of the code keep their numbers.

    >>> with_complex("int x;")
    'int x;'
    """
    found = _INCLUDE.search(code)
    if found is None:
        return code
    line = code.count("\n", 0, found.start()) + 1
    return f'{COMPLEX}#line 1 "kernel.cu"\n{code[: found.start()]}// line {line}{code[found.end() :]}'
