"""Complex numbers in CUDA C++, for kernels that were written for CuPy's `complex<T>`, which is `thrust::complex<T>`.

NVRTC has no `<complex>` header, and workers have no CuPy, so the definition is sent with the code. The header of
libcu++ would take a second to compile.
"""

from __future__ import annotations

import re

__all__ = ["COMPLEX", "with_complex"]

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]cupy/complex\.cuh[>\"][^\n]*$", re.MULTILINE)

COMPLEX = """\
#define GPUFLEET_THRUST_COMPLEX
namespace thrust {
template <typename T> struct _same { typedef T type; };
template <bool widens> struct _if {};
template <> struct _if<true> { typedef int type; };

template <typename T> struct alignas(2 * sizeof(T)) complex {
    T _real, _imag;
    complex() = default;
    __host__ __device__ constexpr complex(T real, T imag = T()) : _real(real), _imag(imag) {}
    template <typename U, typename _if<(sizeof(U) < sizeof(T))>::type = 0>
    __host__ __device__ constexpr complex(const complex<U> &z) : _real(z._real), _imag(z._imag) {}
    template <typename U, typename _if<(sizeof(U) > sizeof(T))>::type = 0>
    __host__ __device__ explicit constexpr complex(const complex<U> &z) : _real(T(z._real)), _imag(T(z._imag)) {}
    template <typename U> __host__ __device__ complex &operator=(const complex<U> &z) {
        return *this = complex(T(z._real), T(z._imag));
    }
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
        if (::fabs(b._real) >= ::fabs(b._imag)) {
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

#define GPUFLEET_COMPLEX template <typename T> __host__ __device__
GPUFLEET_COMPLEX T real(const complex<T> &z) { return z._real; }
GPUFLEET_COMPLEX T imag(const complex<T> &z) { return z._imag; }
GPUFLEET_COMPLEX T norm(const complex<T> &z) { return z._real * z._real + z._imag * z._imag; }
GPUFLEET_COMPLEX T abs(const complex<T> &z) { return ::hypot(z._real, z._imag); }
GPUFLEET_COMPLEX T arg(const complex<T> &z) { return ::atan2(z._imag, z._real); }
GPUFLEET_COMPLEX complex<T> conj(const complex<T> &z) { return complex<T>(z._real, -z._imag); }
GPUFLEET_COMPLEX complex<T> polar(const T &radius, const T &angle = T()) {
    return complex<T>(radius * ::cos(angle), radius * ::sin(angle));
}
GPUFLEET_COMPLEX complex<T> proj(const complex<T> &z) {
    if (!::isinf(z._real) && !::isinf(z._imag)) return z;
    return complex<T>(::fabs(::isinf(z._real) ? z._real : z._imag), ::copysign(T(0), z._imag));
}
GPUFLEET_COMPLEX complex<T> _turned(const complex<T> &z) { return complex<T>(-z._imag, z._real); }
GPUFLEET_COMPLEX complex<T> _turned_back(const complex<T> &z) { return complex<T>(z._imag, -z._real); }
GPUFLEET_COMPLEX complex<T> exp(const complex<T> &z) {
    T scale = ::exp(z._real);
    return z._imag == T(0) ? complex<T>(scale, z._imag) : polar(scale, z._imag);
}
GPUFLEET_COMPLEX complex<T> log(const complex<T> &z) { return complex<T>(::log(abs(z)), arg(z)); }
GPUFLEET_COMPLEX complex<T> log10(const complex<T> &z) { return log(z) * T(0.43429448190325182765); }
GPUFLEET_COMPLEX complex<T> sqrt(const complex<T> &z) {
    if (z._real == T(0) && z._imag == T(0)) return complex<T>(T(0), z._imag);
    T half = ::sqrt((abs(z) + ::fabs(z._real)) / T(2)), other = z._imag / (T(2) * half);
    return z._real >= T(0) ? complex<T>(half, other) : complex<T>(::fabs(other), ::copysign(half, z._imag));
}
GPUFLEET_COMPLEX complex<T> pow(const complex<T> &z, const complex<T> &power) {
    bool is_zero = z == complex<T>(T(0)) && power._real > T(0);
    return is_zero ? complex<T>(T(0)) : exp(power * log(z));
}
GPUFLEET_COMPLEX complex<T> pow(const complex<T> &z, typename _same<T>::type power) {
    return pow(z, complex<T>(power));
}
GPUFLEET_COMPLEX complex<T> pow(typename _same<T>::type base, const complex<T> &power) {
    return pow(complex<T>(base), power);
}
GPUFLEET_COMPLEX complex<T> sinh(const complex<T> &z) {
    return complex<T>(::sinh(z._real) * ::cos(z._imag), ::cosh(z._real) * ::sin(z._imag));
}
GPUFLEET_COMPLEX complex<T> cosh(const complex<T> &z) {
    return complex<T>(::cosh(z._real) * ::cos(z._imag), ::sinh(z._real) * ::sin(z._imag));
}
GPUFLEET_COMPLEX complex<T> tanh(const complex<T> &z) {
    T x = T(2) * z._real, y = T(2) * z._imag;
    if (::fabs(x) > T(80)) return complex<T>(::copysign(T(1), x), ::copysign(T(0), ::sin(y)));
    T scale = ::cosh(x) + ::cos(y);
    return complex<T>(::sinh(x) / scale, ::sin(y) / scale);
}
GPUFLEET_COMPLEX complex<T> sin(const complex<T> &z) { return _turned_back(sinh(_turned(z))); }
GPUFLEET_COMPLEX complex<T> cos(const complex<T> &z) { return cosh(_turned(z)); }
GPUFLEET_COMPLEX complex<T> tan(const complex<T> &z) { return _turned_back(tanh(_turned(z))); }
GPUFLEET_COMPLEX complex<T> asinh(const complex<T> &z) {
    if (z._real < T(0)) return -asinh(-z);
    return log(z + sqrt(z * z + T(1)));
}
GPUFLEET_COMPLEX complex<T> acosh(const complex<T> &z) { return log(z + sqrt(z + T(1)) * sqrt(z - T(1))); }
GPUFLEET_COMPLEX complex<T> atanh(const complex<T> &z) { return (log(z + T(1)) - log(complex<T>(T(1)) - z)) * T(0.5); }
GPUFLEET_COMPLEX complex<T> asin(const complex<T> &z) { return _turned_back(asinh(_turned(z))); }
GPUFLEET_COMPLEX complex<T> acos(const complex<T> &z) { return complex<T>(T(1.57079632679489661923)) - asin(z); }
GPUFLEET_COMPLEX complex<T> atan(const complex<T> &z) { return _turned_back(atanh(_turned(z))); }
#undef GPUFLEET_COMPLEX
}
using thrust::complex;
using thrust::arg;
using thrust::conj;
using thrust::imag;
using thrust::norm;
using thrust::polar;
using thrust::proj;
using thrust::real;
"""


def with_complex(code: str) -> str:
    """Replaces `#include <cupy/complex.cuh>` by the definition above. The line numbers of the code do not change.

    >>> with_complex("int x;")
    'int x;'
    """
    found = _INCLUDE.search(code)
    if found is None:
        return code
    line = code.count("\n", 0, found.start()) + 1
    return f'{COMPLEX}#line 1 "kernel.cu"\n{code[: found.start()]}// line {line}{code[found.end() :]}'
