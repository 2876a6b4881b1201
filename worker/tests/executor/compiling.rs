//! Tests of compiling CUDA C in child processes.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use gpufleet_schema::{Failure, FailureCode, Verdict};
use gpufleet_worker::compiler::{
    CompileError, CompileRequest, Compiled, Compiler, Counts, ProgramOrigin, ProgramStore, Sandbox, Target,
    options::{OPTIONS, OptionVerdict},
};

use crate::harness::executable;

fn request(code: &str) -> CompileRequest {
    CompileRequest {
        code: code.to_owned(),
        options: vec![],
        expressions: vec![],
        target: Target::ptx((8, 0)),
        nvrtc: None,
    }
}

async fn compile(request: CompileRequest) -> Result<Arc<Compiled>, CompileError> {
    Compiler::new(None).with_executable(executable()).compile(request).await.map(|found| found.compiled)
}

const GOOD: &str = "extern \"C\" __global__ void f(float *x) { x[threadIdx.x] *= 2.0f; }\n";

#[tokio::test]
async fn code_becomes_ptx_for_the_devices_architecture() {
    let compiled =
        compile(request(GOOD)).await.expect("NVRTC is installed, as `cargo xtask test` does before it starts");
    assert!(compiled.ptx.contains(".visible .entry f("), "{}", compiled.ptx);
    assert!(compiled.ptx.contains(".target sm_80"), "{}", compiled.ptx);
    assert!(compiled.version.starts_with("12."), "{}", compiled.version);
    assert!(!compiled.ptx.ends_with('\0'));
}

#[tokio::test]
async fn a_device_between_two_architectures_gets_the_older_one() {
    let compiled = compile(CompileRequest { target: Target::ptx((8, 8)), ..request(GOOD) }).await.unwrap();
    assert!(compiled.ptx.contains(".target sm_8"), "{}", compiled.ptx);
}

#[tokio::test]
async fn an_error_comes_back_with_its_line_and_the_log() {
    let error = compile(request("\nextern \"C\" __global__ void f(float *x) {\n  x[0] = y;\n}\n")).await.unwrap_err();
    let failure = Failure::from(error);
    assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::CompileError));
    assert_eq!(failure.line, Some(3));
    assert_eq!(failure.message, "kernel.cu(3): error: identifier \"y\" is undefined");
    assert!(failure.detail.unwrap().contains("1 error detected"));
}

#[tokio::test]
async fn cudas_own_headers_can_be_included() {
    let code = "#include <cuda_fp16.h>\n#include <cuda/std/limits>\nextern \"C\" __global__ void f(__half *x) { x[0] = __hadd(x[0], x[1]); }\n";
    compile(request(code)).await.unwrap();
}

#[tokio::test]
async fn standard_headers_can_be_included() {
    let cases = [
        (
            "#include <stdint.h>\n#include <cstdint>",
            "int32_t a = 1; std::uint64_t b = INT64_MAX; x[0] = a + b + UINT8_MAX;",
        ),
        (
            "#include <cstddef>",
            "struct S { int a; int b; }; std::size_t at = offsetof(S, b); int *none = NULL; x[0] = at + !none;",
        ),
        ("#include <math.h>", "x[0] = M_PI + NAN + INFINITY + std::sqrt(2.0f) + std::pow(2.0, 3) + std::abs(-2);"),
        ("#include <cuda/std/cmath>\n#include <cmath>", "x[0] = cuda::std::sqrt(2.0f) + std::sqrt(2.0);"),
        (
            "#include <climits>\n#include <cfloat>\n#include <limits>",
            "x[0] = INT_MAX + FLT_MAX + std::numeric_limits<float>::max();",
        ),
        (
            "#include <cstdio>\n#include <cassert>\n#include <cstring>\n#include <cstdlib>",
            "assert(x[0] == 1); std::printf(\"a\"); std::memset(x, 0, 4); std::free(std::malloc(4));",
        ),
        (
            "#include <type_traits>\n#include <utility>",
            "static_assert(std::is_same<int, int>::value); std::swap(x[0], x[1]);",
        ),
        (
            "#include <thrust/complex.h>",
            "thrust::complex<float> z(1, 2); x[0] = thrust::abs(thrust::exp(z) + thrust::polar(1.0f, 2.0f));",
        ),
    ];
    for (headers, body) in cases {
        let code = format!("{headers}\nextern \"C\" __global__ void f(float *x) {{ {body} }}\n");
        compile(request(&code)).await.unwrap_or_else(|error| panic!("{headers}: {error}"));
    }
}

#[tokio::test]
async fn a_header_that_no_worker_has_comes_with_advice() {
    for (name, advice) in [("curand_kernel.h", "no cuRAND"), ("cub/cub.cuh", "cub/block/"), ("vector", "host program")]
    {
        let error = compile(request(&format!("#include <{name}>\n{GOOD}"))).await.unwrap_err();
        let failure = Failure::from(error);
        assert!(failure.message.contains(advice), "{}", failure.message);
        assert!(failure.detail.unwrap().contains(advice));
    }
}

#[tokio::test]
async fn a_host_file_never_shows_in_a_log() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "hunter2 hunter2 hunter2").unwrap();
    let path = secret.path().display();
    for code in [
        format!("#include \"{path}\"\n"),
        format!("#define NAME \"{path}\"\n#include NAME\n"),
        format!("#inc\\\nlude \"{path}\"\n"),
        format!("%:include \"{path}\"\n"),
        format!("/**/ # /**/ include /**/ \"{path}\"\n"),
    ] {
        let error = compile(request(&format!("{code}{GOOD}"))).await.expect_err(&code);
        let failure = Failure::from(error);
        assert_eq!(failure.verdict, Verdict::User, "{failure:?}");
        let told = format!("{} {}", failure.message, failure.detail.unwrap_or_default());
        assert!(!told.contains("hunter2"), "{code}: {told}");
    }
}

#[tokio::test]
async fn a_log_does_not_say_whether_a_file_of_the_host_exists() {
    let mut told = Vec::new();
    for path in ["/etc/passwd", "/etc/missing", "/etc", "/proc/self/environ"] {
        let code = format!("#define NAME \"{path}\"\n#include NAME\n{GOOD}");
        let failure = Failure::from(compile(request(&code)).await.unwrap_err());
        told.push(format!("{} {}", failure.message, failure.detail.unwrap_or_default()).replace(path, "PATH"));
    }
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
}

#[tokio::test]
async fn a_forbidden_option_is_refused_by_name() {
    let error = compile(CompileRequest { options: vec!["-I/etc".to_owned()], ..request(GOOD) }).await.unwrap_err();
    assert!(matches!(error, CompileError::Refused(_)));
    assert!(Failure::from(error).message.contains("\"-I/etc\""));
}

/// Code that is affected by most options: a macro, a loop, a division, a square root.
const OPTIONAL: &str = "extern \"C\" __global__ void f(float *x) {\n#ifdef F\n  x[1] = F(2);\n#endif\n\
    for (int i = 0; i < 4; i++) x[i] = sqrtf(x[i]) / 3.0f;\n}\n";

#[tokio::test]
async fn nvrtc_takes_every_option_that_is_allowed_in_the_sandboxed_compiler() {
    // The newest architecture that this NVRTC knows, because some options need one.
    let target = Target { arch: (10, 0), cubin_for: Some(12_090) };
    let compiler = Compiler::new(None).with_executable(executable()).with_sandbox(Sandbox::Strict);
    let mut compiled = 0;
    for option in OPTIONS.iter().filter(|option| !matches!(option.verdict, OptionVerdict::Refused(_))) {
        for value in option.value.samples() {
            let options = option.spellings(value.as_deref()).swap_remove(0);
            let found =
                compiler.compile(CompileRequest { options: options.clone(), target, ..request(OPTIONAL) }).await;
            let found = found.unwrap_or_else(|error| panic!("{options:?}: {error}"));
            assert!(found.compiled.ptx.contains(".visible .entry f("), "{options:?}");
            assert!(found.compiled.cubin.is_some(), "{options:?}");
            compiled += 1;
        }
    }
    assert!(compiled > OPTIONS.len() / 2, "{compiled}");
}

#[tokio::test]
async fn an_option_reaches_nvrtc_in_whatever_spelling() {
    let code = format!("static_assert(N == 4, \"N\");\n{GOOD}");
    for options in [&["-D", "N=4"][..], &["-DN=4"], &["--define-macro N=4"], &["-DN=5", "-UN", "-DN=4"]] {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        compile(CompileRequest { options, ..request(&code) }).await.unwrap();
    }
}

#[tokio::test]
async fn a_missing_nvrtc_is_the_workers_fault_and_says_what_to_do() {
    let error = compile(CompileRequest { nvrtc: Some("/nowhere".into()), ..request(GOOD) }).await.unwrap_err();
    let failure = Failure::from(error);
    assert_eq!((failure.verdict, failure.code), (Verdict::Infrastructure, FailureCode::CompileError));
    assert!(failure.message.contains("submit PTX"), "{}", failure.message);
}

#[tokio::test]
async fn equal_requests_at_the_same_time_are_compiled_once() {
    let compiler = Compiler::new(None).with_executable(executable());
    let jobs = (0..16).map(|_| compiler.compile(request(GOOD)));
    let all = futures::future::join_all(jobs).await;
    let first = &all[0].as_ref().unwrap().compiled;
    assert!(all.iter().all(|found| Arc::ptr_eq(&found.as_ref().unwrap().compiled, first)));
}

#[tokio::test]
async fn a_cubin_comes_with_the_ptx_where_the_device_takes_one() {
    let target = Target { arch: (9, 0), cubin_for: Some(12_080) };
    let compiled = compile(CompileRequest { target, ..request(GOOD) }).await.unwrap();
    let cubin = compiled.cubin.as_deref().expect("NVRTC 12 knows sm_90");
    assert!(cubin.starts_with(b"\x7fELF"), "{:?}", &cubin[..4]);
    assert!(compiled.ptx.contains(".target sm_90") && compiled.ptx.contains(".visible .entry f("), "{}", compiled.ptx);
    assert_eq!(compile(request(GOOD)).await.unwrap().cubin, None);
    // NVRTC does not know this architecture, so the only result is PTX for an older one.
    let newer = Target { arch: (99, 0), ..target };
    assert_eq!(compile(CompileRequest { target: newer, ..request(GOOD) }).await.unwrap().cubin, None);
}

fn compiler_with(folder: &Path) -> Compiler {
    let store = ProgramStore::open(folder, 1 << 20).expect("the folder is new");
    Compiler::new(None).with_executable(executable()).with_store(Some(store))
}

#[tokio::test]
async fn what_one_worker_compiled_another_finds_on_disk_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("modules");
    let target = Target { arch: (9, 0), cubin_for: Some(12_080) };
    let wanted = CompileRequest { target, ..request(GOOD) };
    let first = compiler_with(&folder).compile(wanted.clone()).await.unwrap();
    assert_eq!(first.origin, ProgramOrigin::Compiler);
    let second = compiler_with(&folder);
    let found = second.compile(wanted.clone()).await.unwrap();
    assert_eq!((found.origin, &found.compiled), (ProgramOrigin::Disk, &first.compiled));
    assert_eq!(second.compile(wanted.clone()).await.unwrap().origin, ProgramOrigin::Memory);
    assert_eq!(
        second.compile(request(GOOD)).await.unwrap().origin,
        ProgramOrigin::Compiler,
        "another target is another program"
    );
    assert_eq!(second.counts(), Counts { memory: 1, disk: 1, compiled: 1 });

    for file in std::fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        let half = std::fs::metadata(&path).unwrap().len() / 2;
        std::fs::File::options().write(true).open(&path).unwrap().set_len(half).unwrap();
    }
    let third = compiler_with(&folder).compile(wanted.clone()).await.unwrap();
    assert_eq!(third.origin, ProgramOrigin::Compiler, "a file that is cut off is not believed");
    assert_eq!(compiler_with(&folder).compile(wanted).await.unwrap().origin, ProgramOrigin::Disk, "and was mended");
}

#[tokio::test]
async fn what_is_refused_is_refused_also_where_programs_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let compiler = compiler_with(&folder.path().join("modules"));
    let forbidden = CompileRequest { options: vec!["-I/etc".to_owned()], ..request(GOOD) };
    assert!(matches!(compiler.compile(forbidden).await, Err(CompileError::Refused(_))));
    assert!(matches!(compiler.compile(request("nonsense")).await, Err(CompileError::Source { .. })));
    assert_eq!(compiler.counts(), Counts::default());
}

/// Creates a compiler that appends a line to a file at each start and then runs `command`. A shell writes the compiler's file. If this
/// process did, another test could start a process while the file is open for writing, and the file could not be executed.
fn noting(folder: &Path, command: &str) -> (PathBuf, impl Fn() -> usize + use<>) {
    let (program, notes) = (folder.join("compiler"), folder.join("notes"));
    let text = format!("#!/bin/sh\necho started >> '{}'\n{command}\n", notes.display());
    let written = std::process::Command::new("sh")
        .args(["-c", "printf '%s' \"$1\" > \"$0\" && chmod +x \"$0\""])
        .args([program.as_os_str(), text.as_ref()])
        .status();
    assert!(written.expect("there is a shell").success());
    (program, move || std::fs::read_to_string(&notes).expect("a compiler was started").lines().count())
}

#[tokio::test]
async fn equal_requests_that_fail_at_the_same_time_are_compiled_once() {
    let folder = tempfile::tempdir().unwrap();
    let (program, starts) = noting(folder.path(), &format!("exec '{}' \"$@\"", executable().display()));
    let compiler = Compiler::new(None).with_executable(program);
    let wrong = || request("nonsense");
    for _ in 0..2 {
        for outcome in futures::future::join_all((0..64).map(|_| compiler.compile(wrong()))).await {
            assert!(matches!(outcome, Err(CompileError::Source { .. })), "{outcome:?}");
        }
    }
    assert_eq!(starts(), 1, "the code stays wrong");
    compiler.compile(request(GOOD)).await.unwrap();
    assert_eq!(starts(), 2);
}

#[tokio::test]
async fn a_failure_that_may_pass_is_shared_and_then_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let (program, starts) = noting(folder.path(), "exit 1");
    let compiler = Compiler::new(None).with_executable(program);
    for round in 1..=2 {
        for outcome in futures::future::join_all((0..64).map(|_| compiler.compile(request(GOOD)))).await {
            assert!(matches!(outcome, Err(CompileError::Died(_))), "{outcome:?}");
        }
        assert_eq!(starts(), round);
    }
}

#[tokio::test]
async fn absurdly_deep_code_is_its_users_fault_and_harms_no_other_job() {
    let deep = format!("{GOOD}int deep = {}0;\n", "(".repeat(100_000));
    let failure = Failure::from(compile(request(&deep)).await.unwrap_err());
    assert_eq!(failure.verdict, Verdict::User, "{}", failure.message);
    compile(request(GOOD)).await.unwrap();
}

#[tokio::test]
async fn a_compiler_that_dies_without_a_word_is_an_error_with_its_status() {
    let compiler = Compiler::new(None).with_executable("/bin/false".into());
    let error = compiler.compile(request(GOOD)).await.unwrap_err();
    assert!(matches!(&error, CompileError::Died(why) if why.contains("exit status: 1")), "{error}");
}

#[test]
fn the_command_writes_ptx_into_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let (source, output) = (folder.path().join("f.cu"), folder.path().join("f.ptx"));
    std::fs::write(&source, GOOD).unwrap();
    let compile = |file: &std::path::Path| {
        std::process::Command::new(executable())
            .args(["compile", file.to_str().unwrap(), "--arch", "compute_90", "--option", "-G", "-o"])
            .arg(&output)
            .output()
            .unwrap()
    };
    let done = compile(&source);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let ptx = std::fs::read_to_string(&output).unwrap();
    assert!(ptx.contains(".target sm_90") && ptx.ends_with("}\n"));
    std::fs::write(&source, "nonsense").unwrap();
    let failed = compile(&source);
    assert!(!failed.status.success());
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(said.starts_with("error: ") && said.contains("f.cu"), "{said}");
}

#[tokio::test]
async fn a_compiler_can_do_nothing_but_compile() {
    let checked = Compiler::new(None).with_executable(executable()).check_sandbox().await.unwrap();
    assert!(checked.closed.calls, "seccomp is in every kernel that is supported");
    let files = ["read a file of the host", "read a process's environment", "write a file"];
    let leaks: Vec<_> =
        checked.open.iter().filter(|what| checked.closed.files || !files.contains(&what.as_str())).collect();
    assert!(leaks.is_empty(), "{leaks:?}");
}

/// Makes Landlock unavailable to what this thread starts, as on a kernel without it.
fn have_no_landlock() {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
    let rules = [(libc::SYS_landlock_create_ruleset, vec![])].into();
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("seccomp knows it");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32), arch);
    let program: BpfProgram = filter.and_then(TryInto::try_into).expect("the filter is a plain one");
    seccompiler::apply_filter(&program).expect("seccomp is in every kernel that is supported");
}

#[tokio::test]
async fn without_landlock_a_source_still_reads_cudas_headers_and_no_file_of_the_host() {
    have_no_landlock();
    let compiler = Compiler::new(None).with_executable(executable());
    assert!(!compiler.check_sandbox().await.unwrap().closed.files);
    compiler.compile(request(&format!("#include <cuda_fp16.h>\n{GOOD}"))).await.unwrap();
    for leak in [
        "/**/#include \"/etc/passwd\"",
        "#/**/include \"/etc/passwd\"",
        "#include \"etc/passwd\"",
        "%:include </etc/passwd>",
    ] {
        match compiler.compile(request(&format!("{leak}\n{GOOD}"))).await.unwrap_err() {
            CompileError::Source { message, log, .. } => {
                assert!(!message.contains("root") && !log.contains("root"), "{leak}: {message}\n{log}");
            }
            other => panic!("{leak}: {other}"),
        }
    }
}

#[tokio::test]
async fn a_compiler_becomes_whom_it_is_told_to_or_compiles_nothing() {
    let compiler = Compiler::new(None).with_executable(executable()).with_user(Some("nobody-of-that-name".to_owned()));
    let failure = Failure::from(compiler.compile(request(GOOD)).await.unwrap_err());
    assert_eq!(failure.verdict, Verdict::Infrastructure);
    assert!(failure.message.contains("nobody-of-that-name"), "{}", failure.message);
}

#[tokio::test]
async fn a_strict_worker_compiles_where_the_kernel_closes_everything_and_nowhere_else() {
    let compiler = || Compiler::new(None).with_executable(executable()).with_sandbox(Sandbox::Strict);
    let closed = compiler().check_sandbox().await.unwrap().closed;
    let compiled = compiler().compile(request(GOOD)).await;
    match closed.missing() {
        None => assert!(compiled.is_ok(), "{compiled:?}"),
        Some(missing) => {
            let failure = Failure::from(compiled.unwrap_err());
            assert_eq!(failure.verdict, Verdict::Infrastructure);
            assert!(failure.message.contains(missing), "{}", failure.message);
        }
    }
}

/// Returns code that needs more than any compiler has: endless instantiations, and text that doubles with every line.
fn bombs() -> [(&'static str, String); 3] {
    let doubling = (0..40).map(|n| format!("#define M{} M{n} M{n}\n", n + 1)).collect::<String>();
    [
        (
            "templates that double",
            "template<int N, int M> struct T { static constexpr int v = T<N - 1, 2 * M>::v + T<N - 1, 2 * M + 1>::v; };\n\
             template<int M> struct T<0, M> { static constexpr int v = M; };\n\
             __device__ int bomb = T<40, 1>::v;\n"
                .to_owned(),
        ),
        ("a constant that takes for ever", "constexpr __device__ int loop(int n) { int s = 0; for (long i = 0; i < (1l << 60); ++i) s += n; return s; }\n__device__ int bomb = loop(3);\n".to_owned()),
        ("macros that double", format!("#define M0 1,\n{doubling}__device__ int bomb[] = {{ M40 }};\n")),
    ]
}

#[tokio::test]
async fn a_compile_bomb_ends_at_its_limits_and_the_next_compiler_works() {
    let limit = Duration::from_secs(10);
    let compiler = Compiler::new(None).with_executable(executable()).with_time_limit(limit);
    let explosions = bombs().map(|(what, code)| {
        let compiler = &compiler;
        async move {
            let failure = Failure::from(compiler.compile(request(&format!("{code}{GOOD}"))).await.expect_err(what));
            assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::CompileError), "{what}");
            let told = ["time limit of 10 s", "the compiler died", "kernel.cu(1)", "kernel.cu("];
            assert!(told.iter().any(|part| failure.message.contains(part)), "{what}: {}", failure.message);
            println!("{what}: {}", failure.message);
        }
    });
    let started = std::time::Instant::now();
    futures::future::join_all(explosions).await;
    assert!(started.elapsed() < 3 * limit, "{:?}", started.elapsed());
    compile(request(GOOD)).await.unwrap();
}

#[tokio::test]
async fn a_log_without_end_is_cut() {
    let lines: String = (0..20_000).map(|n| format!("int x{n} = undefined_{n};\n")).collect();
    let failure = Failure::from(compile(request(&lines)).await.unwrap_err());
    let kept = failure.detail.unwrap().len();
    assert!(kept <= gpufleet_schema::bounds::FAILURE_DETAIL_BYTES_MAX, "{kept}");
}
