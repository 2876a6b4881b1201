"""Kernel signatures: what each parameter is, and which sources are refused."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import gpufleet as gf
from gpufleet._element import Element
from gpufleet._signature import Parameter, Signature, SignatureError, signature
from gpufleet._task import Zeros
from gpufleet._wire import DTYPES

C = 'extern "C" __global__ void k'


def read(code: str, entry: str = "k", options: tuple[str, ...] = ()) -> list[str]:
    """Each parameter as `name: type`, with `>` for an array that the kernel only reads and `<>` for others."""
    found = signature(code, entry, options)
    assert found.parameters is not None, found.problem
    marks = {(True, True): "> ", (True, False): "<> ", (False, False): ""}
    return [f"{p.name}: {marks[p.is_pointer, p.is_input]}{layout(p.element)}" for p in found.parameters]


def layout(element: Element | None) -> str:
    if element is None:
        return "?"
    return element.wire + (f"x{element.count}" if element.count > 1 else "")


READ = {
    "no parameters": (f"{C}() {{}}", []),
    "const inside of a template's arguments": (
        "template <typename T> struct V { T *p; unsigned n; };\n"
        f"{C}(V<const float> *x, const V<const float> *y, V<float[2]> const *z) {{}}",
        ["x: <> ?", "y: > ?", "z: > ?"],
    ),
    "an alias with const inside of a template's arguments": (
        f"template <typename T> struct V {{ T *p; }};\nusing CV = V<const float>;\n{C}(CV *x, const CV *y) {{}}",
        ["x: <> ?", "y: > ?"],
    ),
    "void": (f"{C}(void) {{}}", []),
    "arrays and a count": (
        f"{C}(const float* x1, const float *x2, float * y, unsigned int n) {{}}",
        ["x1: > f32", "x2: > f32", "y: <> f32", "n: u32"],
    ),
    "const on the right": (f"{C}(float const* x, float* const y) {{}}", ["x: > f32", "y: <> f32"]),
    "restrict": (f"{C}(const float* __restrict__ x, float* __restrict y) {{}}", ["x: > f32", "y: <> f32"]),
    "volatile": (f"{C}(volatile int* x, const volatile int* y) {{}}", ["x: <> i32", "y: > i32"]),
    "grid constant": (f"{C}(const __grid_constant__ int n) {{}}", ["n: i32"]),
    "C's integers": (
        f"{C}(char a, signed char b, unsigned char c, short d, unsigned short e, int f, unsigned g, long h,"
        " unsigned long i, long long j, unsigned long long k, bool l) {}",
        [
            "a: i8",
            "b: i8",
            "c: u8",
            "d: i16",
            "e: u16",
            "f: i32",
            "g: u32",
            "h: i64",
            "i: u64",
            "j: i64",
            "k: u64",
            "l: bool",
        ],
    ),
    "integers in odd order": (
        f"{C}(long unsigned int a, int short b, long long int unsigned c, signed d) {{}}",
        ["a: u64", "b: i16", "c: u64", "d: i32"],
    ),
    "fixed widths": (
        f"{C}(int8_t a, cuda::std::uint16_t b, cuda::std::int32_t c, uint64_t* d, size_t e) {{}}",
        ["a: i8", "b: u16", "c: i32", "d: <> u64", "e: u64"],
    ),
    "half and bfloat16": (
        f"{C}(const half* x, __nv_bfloat16* y, __half a) {{}}",
        ["x: > f16", "y: <> bf16", "a: f16"],
    ),
    "vectors": (f"{C}(const float4* x, float3 a, uchar4* y) {{}}", ["x: > f32x4", "a: f32x3", "y: <> u8x4"]),
    "complex": (
        f"{C}(const cuFloatComplex* x, cuda::std::complex<double>* y, cuda::std::complex<float> a) {{}}",
        ["x: > f32x2", "y: <> f64x2", "a: f32x2"],
    ),
    "void pointers": (f"{C}(const void* x, void* y) {{}}", ["x: > ?", "y: <> ?"]),
    "arrays in brackets": (
        f"{C}(float x[], const int y[4], float z[2][3]) {{}}",
        ["x: <> f32", "y: > i32", "z: <> f32"],
    ),
    "no names": (f"{C}(const float*, float*, unsigned int) {{}}", ["arg0: > f32", "arg1: <> f32", "arg2: u32"]),
    "defaults": (f"{C}(float* x, int n = 4 * (1, 2)) {{}}", ["x: <> f32", "n: i32"]),
    "comments": (
        f"/* {C}(int wrong); */ // {C}(int wrong)\n{C}(float* x /* , int n */, // the rest\n int m) {{}}",
        ["x: <> f32", "m: i32"],
    ),
    "text": (f'__device__ const char* s = "{C.replace(chr(34), chr(39))}(int wrong) {{";\n{C}(int n) {{}}', ["n: i32"]),
    "raw text": (f'__device__ const char* s = R"({C}(int wrong) {{)";\n{C}(int n) {{}}', ["n: i32"]),
    "continued lines": (f"{C}(const float* x, \\\n   int n)\n{{}}", ["x: > f32", "n: i32"]),
    "launch bounds before": (
        'extern "C" __global__ __launch_bounds__(256, 2) void k(float* x) {}',
        ["x: <> f32"],
    ),
    "launch bounds after": ('extern "C" __global__ void __launch_bounds__(256) k(float* x) {}', ["x: <> f32"]),
    "an attribute": ('extern "C" __attribute__((used)) __global__ void k(float* x) {}', ["x: <> f32"]),
    "an extern block": (
        'extern "C" {\n__device__ float f(float x) { return x; }\n__global__ void j(int n) {}\n'
        "__global__ void k(float* x) {}\n}",
        ["x: <> f32"],
    ),
    "macros": (
        '#define KERNEL extern "C" __global__ void\n#define REAL float\n#define IN const REAL* __restrict__\n'
        "KERNEL k(IN x, REAL* y) {}",
        ["x: > f32", "y: <> f32"],
    ),
    "aliases": (
        f"typedef float real;\nusing index = unsigned long long;\n{C}(const real* x, index n) {{}}",
        ["x: > f32", "n: u64"],
    ),
    "a hidden version": (
        f"#if 0\n#ifdef A\n#endif\n{C}(int wrong) {{}}\n#else\n{C}(float* x) {{}}\n#endif",
        ["x: <> f32"],
    ),
    "a forward declaration": (f"{C}(float* x, int n);\n{C}(float* x, int n) {{}}", ["x: <> f32", "n: i32"]),
    "a structure by value": (
        f"struct Params {{ float a; int n; }};\n{C}(float* x, Params p, struct Params q) {{}}",
        ["x: <> f32", "p: ?", "q: ?"],
    ),
    "a function before": (
        f"__device__ int f(int a) {{ if (a) {{ return 1; }} return a; }}\n{C}(int n) {{}}",
        ["n: i32"],
    ),
}


@pytest.mark.parametrize("case", READ)
def test_a_signature_is_read(case: str) -> None:
    code, expected = READ[case]
    assert read(code) == expected


TEMPLATE = "template <typename T, int N = 4>\n__global__ void fx3(T* arr, const T* in, T a, int n) {}"


def test_a_template_takes_its_types_from_the_name_expression() -> None:
    assert read(TEMPLATE, "fx3<float>") == ["arr: <> f32", "in: > f32", "a: f32", "n: i32"]
    assert read(TEMPLATE, "fx3<unsigned char, 8>") == ["arr: <> u8", "in: > u8", "a: u8", "n: i32"]
    assert read(TEMPLATE, "fx3<Custom>") == ["arr: <> ?", "in: > ?", "a: ?", "n: i32"]


def test_namespaces_of_other_libraries_do_not_matter() -> None:
    code = (
        f"{C}(std::int16_t n, const complex<float>* x, thrust::complex<double>* y, std::complex<float> a,"
        " cuDoubleComplex b) {}"
    )
    assert read(code) == ["n: i16", "x: > f32x2", "y: <> f64x2", "a: f32x2", "b: f64x2"]


def test_a_name_expression_reaches_mangled_kernels() -> None:
    assert read("__global__ void k(float* x) {}", "::k") == ["x: <> f32"]
    assert read("namespace a { namespace { __global__ void k(float* x) {} } }", "a::k") == ["x: <> f32"]


def test_macros_of_the_options_are_expanded() -> None:
    code = f"{C}(REAL* x, SIZE n) {{}}"
    assert read(code, options=("-DREAL=double", "--use_fast_math", "-D", "SIZE=size_t")) == ["x: <> f64", "n: u64"]
    assert read(code, options=("--define-macro=REAL=half", "-DSIZE=int")) == ["x: <> f16", "n: i32"]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (f"#define ARRAY(T) T*\n{C}(ARRAY(float) x) {{}}", "a macro with parameters is in its signature"),
        ('#define KERNEL(n) extern "C" __global__ void n\nKERNEL(k)(float* x) {}', "a macro with parameters hides it"),
        (f"{C}(float (*x)[4]) {{}}", "not a plain list"),
        ("template <typename... A> __global__ void k(A... a) {}", "not a plain list"),
        (f"typedef float* array;\n{C}(const array x) {{}}", "the type array is a pointer"),
        (f"#ifdef A\n{C}(int n) {{}}\n#else\n{C}(float* x) {{}}\n#endif", "declared more than once"),
        (f"#ifdef A\n#define REAL int\n#else\n#define REAL float\n#endif\n{C}(REAL* x) {{}}", "a macro"),
    ],
)
def test_what_can_not_be_read_is_left_to_numpys_types(code: str, problem: str) -> None:
    found = signature(code, "k<int>" if "template" in code else "k")
    assert found.parameters is None
    assert problem in found.problem


@pytest.mark.parametrize(
    ("code", "entry", "message"),
    [
        (f"{C}(int n) {{}}", "j", "the source has no kernel 'j'; its kernels are k"),
        ("int f() {}", "k", "it has no __global__ function"),
        ("__global__ void k(int n) {}", "k", """write extern "C" before __global__, or name it '::k'"""),
        ("namespace a { __global__ void k(int n) {} }", "k", "name it 'namespace::k'"),
        (TEMPLATE, "fx3", "is a template; name one of its instances, for example 'fx3<float>'"),
        (f"{C}(float** x) {{}}", "k", r"'x' \(float\*\*\) points to pointers.*pass one array and offsets"),
        (f"{C}(float& x) {{}}", "k", "'x' is a reference.*use a pointer or a value"),
    ],
)
def test_what_no_host_can_launch_is_refused(code: str, entry: str, message: str) -> None:
    with pytest.raises(SignatureError, match=message):
        signature(code, entry)


def test_damaged_text_is_no_crash() -> None:
    whole = "".join(code for code, _ in READ.values()) + TEMPLATE
    pieces = [whole[start : start + length] for start in range(0, len(whole), 7) for length in (1, 40, 300)]
    for piece in ["", "{", "}}}", "#define", f"{C}(", f"{C}(int n,) {{}}", f"{C}(*) {{}}", f"{C}(const) {{}}", *pieces]:
        with contextlib.suppress(SignatureError):
            assert isinstance(signature(piece, "k"), Signature)


HEADERS = {
    "half": "cuda_fp16.h",
    "bfloat16": "cuda_bf16.h",
    "cuFloatComplex": "cuComplex.h",
    "int32_t": "cuda/std/cstdint",
    "complex<": "cuda/std/complex",
}
"""What a type in the code needs."""


def argument(parameter: Parameter) -> object:
    """An argument of the type that was read, so that the worker compares it with the compiled kernel."""
    element = parameter.element
    if element is None:
        return np.zeros(12, np.float32) if parameter.is_pointer else np.zeros(1, "f4,i4")[0]
    if parameter.is_pointer:
        return Zeros((12, element.count), element.wire)
    return 0 if element.count == 1 else np.zeros(element.count, DTYPES[element.wire])


@pytest.mark.parametrize("case", READ)
def test_the_compiled_kernel_has_this_signature(fleet: gf.Fleet, case: str) -> None:
    code, _ = READ[case]
    headers = "".join(f"#include <{header}>\n" for word, header in HEADERS.items() if word in code)
    kernel = fleet.RawKernel(headers + code, "k")
    parameters = signature(code, "k").parameters
    assert parameters is not None
    kernel.submit(1, 1, [argument(parameter) for parameter in parameters]).result(timeout=60)
