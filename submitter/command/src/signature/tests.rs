use super::*;

fn read(code: &str) -> Result<String, String> {
    let spelled = |parameter: &Parameter| {
        let mark = match parameter.kind {
            Kind::Input => "<",
            Kind::Output => ">",
            Kind::Scalar => "",
        };
        format!("{mark}{}:{}", parameter.name, parameter.dtype)
    };
    match parameters(code, "k", &[]) {
        Ok(found) => Ok(found.iter().map(spelled).collect::<Vec<_>>().join(" ")),
        Err(problem) => Err(problem.to_string()),
    }
}

#[test]
fn parameters_have_their_dtypes_and_directions() {
    for (parameters, expected) in [
        ("const float *x, float *y, unsigned n", "<x:f32 >y:f32 n:u32"),
        ("float const*__restrict__ x, double* __restrict__ y, const int n", "<x:f32 >y:f64 n:i32"),
        ("const double x[], long long y[8], size_t n", "<x:f64 >y:i64 n:u64"),
        ("const std::int32_t *a, uint8_t *b, int64_t n", "<a:i32 >b:u8 n:i64"),
        ("unsigned long long int *a, long b, unsigned char c, signed char d", ">a:u64 b:i64 c:u8 d:i8"),
        ("short *a, unsigned short b, char c, unsigned int d, bool *e", ">a:i16 b:u16 c:i8 d:u32 >e:bool"),
        ("const __half *x, __nv_bfloat16 *y", "<x:f16 >y:bf16"),
        ("float *const x, int n = 3", ">x:f32 n:i32"),
        ("void", ""),
        ("", ""),
    ] {
        assert_eq!(read(&format!("extern \"C\" __global__ void k({parameters}) {{}}")).unwrap(), expected);
    }
}

#[test]
fn a_kernel_is_found_among_other_code() {
    let code = r##"
        #include <cuda_fp16.h>
        #define REAL double /* here */
        #define LONG(x) \
            x
        typedef float Real;
        using Index = unsigned;
        struct Pair { int a; int b; } pair;
        __device__ float helper(float *k) { return *k; } // __global__ void k(int wrong)
        /* extern "C" __global__ void k(int wrong) */
        const char *text = "__global__ void k(int wrong) \" {";
        const char *raw = R"--(extern "C" __global__ void k(int wrong))--";
        namespace inner { __global__ void other(int a) { if (a) { a = 1; } } }
        extern "C" {
            __global__ void __launch_bounds__(256) k(const REAL *x, Real *y, Index n);
            __global__ void __launch_bounds__(256) k(const REAL *values, Real *y, Index n) { y[0] = x[0]; }
        }
        extern "C" __global__ void last(float *x) {}
    "##;
    assert_eq!(read(code).unwrap(), "<x:f64 >y:f32 n:u32");
    let names = parameters(code, "none", &[]).unwrap_err().to_string();
    assert_eq!(names, "it has no kernel none; its kernels are k, last, other");
}

#[test]
fn what_can_not_be_read_is_told() {
    for (code, says) in [
        ("", "it has no kernel k, and no other kernel"),
        ("__global__ void k(int n) {}", "not extern \"C\""),
        ("template <typename T> __global__ void k(T *x) {}", "is a template"),
        ("extern \"C\" __global__ void k(T *x) {}", "parameter x of kernel k is T * x"),
        ("extern \"C\" __global__ void k(float **x) {}", "parameter x of kernel k is float * * x"),
        ("extern \"C\" __global__ void k(float4 *x) {}", "parameter x of kernel k is float4 * x"),
        ("extern \"C\" __global__ void k(float &x) {}", "parameter x of kernel k is float & x"),
        ("extern \"C\" __global__ void k(void *x) {}", "parameter x of kernel k is void * x"),
        ("extern \"C\" __global__ void k(float *, int n) {}", "parameter 1 (without a name) of kernel k is float *"),
        ("extern \"C\" __global__ void k(int n, float n) {}", "two parameters of kernel k have the name n"),
        (
            "#if A\nextern \"C\" __global__ void k(int n) {}\n#else\nextern \"C\" __global__ void k(float n) {}\n#endif",
            "more than once",
        ),
        (
            "#define ARRAY(T) T*\nextern \"C\" __global__ void k(ARRAY(float) x) {}",
            "the parameters of kernel k contain a macro",
        ),
        ("typedef float *P; extern \"C\" __global__ void k(P x) {}", "parameter x of kernel k is P x"),
        ("typedef A B; typedef B A; extern \"C\" __global__ void k(A x) {}", "parameter x of kernel k is A x"),
        ("extern \"C\" __global__ void k(float x", "x"),
    ] {
        match read(code) {
            Ok(found) => assert!(code.ends_with("float x") && found == "x:f32", "{code}: {found}"),
            Err(problem) => assert!(problem.contains(says), "{code}: {problem}"),
        }
    }
}

#[test]
fn the_only_kernel_is_the_entry_of_a_job() {
    let entry = |code: &str| only_entry(code, &[]).map_err(|problem| problem.to_string());
    assert_eq!(entry("extern \"C\" __global__ void k(int n); extern \"C\" __global__ void k(int n) {}").unwrap(), "k");
    assert_eq!(entry("__device__ int f(int a) { return a; } __global__ void k(int n) {}").unwrap(), "::k");
    for (code, says) in [
        ("int main() {}", "no kernel"),
        ("__global__ void b(int n) {} __global__ void a(int n) {}", "several kernels: a, b"),
        ("template <class T> __global__ void k(T n) {}", "k is a template"),
        ("namespace a { __global__ void k(int n) {} }", "k is in a namespace"),
        ("#define K(n) __global__ void n\nK(k)(int n) {}", "hides its kernels"),
    ] {
        assert!(entry(code).unwrap_err().contains(says), "{code}");
    }
}

#[test]
fn an_entry_may_be_a_name_expression() {
    let read = |code: &str, entry: &str, options: &[&str]| {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        match parameters_of_entry(code, entry, &options) {
            Ok(found) => spelled(entry, &found),
            Err(problem) => problem.to_string(),
        }
    };
    let code = "__global__ void k(const float *x, int n) {}";
    assert_eq!(read(code, "::k", &[]), "::k(x: in f32, n: i32)");
    assert_eq!(read(code, "k", &[]), "k(x: in f32, n: i32)");
    let space = "namespace a { __global__ void k(int n) {} }";
    assert_eq!(read(space, "a::k", &[]), "a::k(n: i32)");
    let template = "template <typename T> __global__ void k(T *x, T a, SIZE n) {}";
    assert_eq!(read(template, "k<double>", &["-DSIZE=size_t"]), "k<double>(x: out f64, a: f64, n: u64)");
    assert!(read(template, "k", &[]).contains("is a template"));
    assert!(read(template, "k<float4>", &[]).contains("parameter x of kernel k<float4> is T * x"));
    let hidden = "#define K(n) __global__ void n\nK(k)(int n) {}";
    assert!(read(hidden, "::k", &[]).contains("hides kernel k"));
}
