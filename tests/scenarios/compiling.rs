//! The worker compiles a producer's CUDA C, and reports compile errors with the line. (fault 41)

use std::{
    iter,
    time::{Duration, Instant},
};

use gpufleet::{Job, JobError};
use gpufleet_local::Signal;
use gpufleet_schema::{
    AttemptState, Dtype, Excerpt, FailureCode, PoolName, Priority, Verdict,
    bounds::{FAILURE_DETAIL_BYTES_MAX, FAILURE_MESSAGE_BYTES_MAX},
    topology::task_queue,
};
use gpufleet_tests::{Ground, Producer, WAIT, poll_until};

const SQUARES: &str = r#"
extern "C" __global__ void squares(const float* x, float* y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}
"#;

fn squares(source: &str) -> Job {
    let x: Vec<f32> = (0..100).map(|value| value as f32).collect();
    Job::source(source)
        .input("x", &x)
        .zeros("y", Dtype::F32, [100])
        .entry("squares")
        .cover([100])
        .arg_buffer("x")
        .arg_buffer("y")
        .arg(100_u32)
        .output("y")
}

#[tokio::test(flavor = "multi_thread")]
async fn cuda_c_is_compiled_once_and_its_errors_name_the_line() {
    let (ground, _worker, fleet) = Ground::served("compiling").await;

    let first = fleet.submit(squares(SQUARES)).await.unwrap().wait(WAIT).await.unwrap();
    let wanted: Vec<f32> = (0..100).map(|value| (value * value) as f32).collect();
    assert_eq!(first.output::<f32>("y").unwrap(), wanted);
    assert!(first.timings.compile_us > 0 && !first.timings.module_cached, "{:?}", first.timings);
    let second = fleet.submit(squares(SQUARES)).await.unwrap().wait(WAIT).await.unwrap();
    assert!(second.timings.module_cached, "{:?}", second.timings);

    let broken = SQUARES.replace("x[i] * x[i]", "x[i] * z[i]");
    let error = fleet.submit(squares(&broken)).await.unwrap().wait(WAIT).await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::CompileError));
    assert_eq!(failure.line, Some(4), "{failure:?}");
    assert!(failure.message.contains("\"z\" is undefined"), "{}", failure.message);
    assert!(failure.detail.as_deref().unwrap().contains("error"), "{failure:?}");
    ground.check_history(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_launches_compiles_and_loads_its_program() {
    let (_ground, _worker, fleet) = Ground::served("compiling").await;

    let compiled = fleet.submit(Job::source(SQUARES)).await.unwrap().wait(WAIT).await.unwrap();
    assert!(compiled.timings.compile_us > 0 && compiled.timings.launches_us.is_empty(), "{:?}", compiled.timings);
    assert!(compiled.outputs.is_empty());
    let run = fleet.submit(squares(SQUARES)).await.unwrap().wait(WAIT).await.unwrap();
    assert!(run.timings.module_cached, "{:?}", run.timings);

    let broken = Job::source(SQUARES.replace("x[i] * x[i]", "x[i] * z[i]"));
    let error = fleet.submit(broken).await.unwrap().wait(WAIT).await.unwrap_err();
    assert_eq!(error.failure().unwrap().code, FailureCode::CompileError);
    let unloadable = Job::ptx(".version 8.0\n.target sm_50\n.address_size 64\n.visible .entry k() { nonsense; }");
    let error = fleet.submit(unloadable).await.unwrap().wait(WAIT).await.unwrap_err();
    assert_eq!(error.failure().unwrap().code, FailureCode::LoadError);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compile_log_never_contains_a_file_of_the_host() {
    let (ground, _worker, fleet) = Ground::served("include").await;
    let leak = format!("#include \"/etc/passwd\"\n{SQUARES}");
    let error = fleet.submit(squares(&leak)).await.unwrap().wait(WAIT).await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!(failure.code, FailureCode::CompileError);
    let told = format!("{} {}", failure.message, failure.detail.as_deref().unwrap_or_default());
    assert!(!told.contains("root:") && !told.contains("/bin/"), "{told}");
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_out_of_bounds_store_is_reported_with_its_line_in_cuda_c() {
    let (ground, _worker, fleet) = Ground::served("lines").await;
    let wild = SQUARES.replace("y[i] = x[i] * x[i]", "\n        y[i + 100] = x[i] * x[i]");
    let error = fleet.submit(squares(&wild)).await.unwrap().wait(WAIT).await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::KernelFault), "{failure:?}");
    let report = failure.detail.as_deref().expect("the emulator reports the access");
    let lines: Vec<&str> = report.lines().map(str::trim).collect();
    assert!(lines[0].starts_with("illegal access of 4 bytes at 0x"), "{report}");
    assert!(lines[0].ends_with(" in global memory in kernel `squares`"), "{report}");
    assert!(lines[1].starts_with("at kernel.cu:5 (PTX line "), "{report}");
    assert!(lines[1].ends_with(", `st.global.f32`)"), "{report}");
    assert_eq!(lines[2], "block (0, 0, 0), thread (0, 0, 0) and 31 others of its warp");
    assert!(lines[3].starts_with("directly past the end of the 400-byte allocation at 0x"), "{report}");
    assert_eq!(lines.len(), 4, "{report}");
    assert_eq!(failure.line, Some(5));
    assert_eq!(failure.source, Excerpt::around(&wild, 5));
    ground.check_history(1).await;
}

/// Returns programs that exceed the compiler's limits or produce an endless log.
fn bombs() -> [(&'static str, String); 4] {
    let undefined = (0..20_000).map(|n| format!("int x{n} = undefined_{n};\n")).collect();
    [
        (
            "templates with exponential instances",
            "template<int N, int M> struct T { static constexpr int v = T<N - 1, 2 * M>::v + T<N - 1, 2 * M + 1>::v; };\n\
             template<int M> struct T<0, M> { static constexpr int v = M; };\n__device__ int bomb = T<40, 1>::v;\n"
                .to_owned(),
        ),
        (
            "templates with endless recursion",
            "template<int N> struct E { static constexpr int v = E<N + 1>::v; };\n__device__ int bomb = E<0>::v;\n"
                .to_owned(),
        ),
        ("a file that includes itself", "#include \"kernel.cu\"\n#include __FILE__\n".to_owned()),
        ("twenty thousand errors", undefined),
    ]
}

/// Runs a valid job. Runs it again if its compiler reached the time limit because bombs occupied the CPU. Returns the
/// number of jobs.
async fn run_beside_bombs(fleet: &Producer, job: impl Fn() -> Job) -> usize {
    let deadline = Instant::now() + WAIT;
    let mut jobs = 1;
    while let Err(error) = fleet.submit(job()).await.unwrap().wait(WAIT).await {
        let message = error.failure().map(|failure| failure.message.as_str());
        assert_eq!(message, Some("failed to compile: the time limit of 2 s has passed"), "{error}");
        assert!(Instant::now() < deadline, "no compiler came to an end beside the bombs");
        jobs += 1;
    }
    jobs
}

/// The number of bombs. Compiling them one by one would take longer than any test waits.
const BOMBS: usize = 400;

#[tokio::test(flavor = "multi_thread")]
async fn compile_bombs_in_one_pool_block_neither_other_pools_nor_the_workers_exit() {
    let ground = Ground::shared("bombed-pool").await;
    let worker = ground.worker_with(&["--compile-limit", "2s", "--pool", "a", "--pool", "b"]).await;
    let fleet = ground.client().await;
    let [a, b]: [PoolName; 2] = ["a", "b"].map(|pool| pool.parse().unwrap());
    let [(_, bomb), ..] = bombs();
    let mut bombs = (0..BOMBS).map(|n| squares(&format!("// {n}\n{bomb}{SQUARES}")).pool(a.clone()));
    let hasty = squares(&format!("// hasty\n{bomb}{SQUARES}")).pool(a.clone()).queue_limit(Duration::from_secs(1));
    // Messages of one call may overtake each other. This message is confirmed first, so the worker has it when it
    // stops.
    let mut first_message = fleet.submit_many(iter::once(hasty).chain(bombs.by_ref().take(8))).await.into_iter();
    let _others = fleet.submit_many(bombs).await;
    poll_until("the bombs occupy all compilers but one", async || worker.compilers().len() == 3).await;
    let first = worker.compilers();

    run_beside_bombs(&fleet, || squares(SQUARES).pool(b.clone())).await;
    // Each compiler has two seconds for a bomb.
    poll_until("the next bombs are compiled", async || worker.compilers().iter().all(|pid| !first.contains(pid))).await;
    assert_eq!(worker.stop(Signal::Terminate).await, Some(0));
    let log = std::fs::read_to_string(worker.process().log()).unwrap();
    assert!(log.contains("draining") && !log.contains("grace period is over"), "{log}");
    let JobError::Failed(failed) = first_message.next().unwrap().unwrap().wait(WAIT).await.unwrap_err() else {
        panic!("no outcome")
    };
    assert_eq!(failed.state, AttemptState::Expired);
    let waiting = ground.broker().await.queue_depth(&task_queue(&a, Priority::Normal)).await.unwrap().unwrap();
    assert!(waiting.messages > 0, "the worker did not requeue the bombs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compile_bomb_fails_only_its_own_job() {
    let ground = Ground::shared("compile-bombs").await;
    let worker = ground.worker_with(&["--compile-limit", "2s"]).await;
    let executors = worker.executors();
    let fleet = ground.client().await;
    let mut explosions = Vec::new();
    for (what, bomb) in bombs() {
        explosions.push((what, fleet.submit(squares(&format!("{bomb}{SQUARES}"))).await.unwrap()));
    }
    // The bombs block neither the device nor the next compiler.
    let mut neighbour = fleet.submit(gpufleet_tests::busy::for_millis(10)).await.unwrap();
    gpufleet_tests::busy::assert_done(&neighbour.wait(WAIT).await.unwrap().outputs);
    for (what, handle) in &mut explosions {
        let error = handle.wait(WAIT).await.unwrap_err();
        let failure = error.failure().unwrap();
        assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::CompileError), "{what}: {failure:?}");
        let told = failure.message.len() + failure.detail.as_ref().map_or(0, String::len);
        assert!(told <= FAILURE_MESSAGE_BYTES_MAX + FAILURE_DETAIL_BYTES_MAX, "{what}: {told} bytes");
    }
    let runs = run_beside_bombs(&fleet, || squares(SQUARES)).await;
    worker.assert_keeps(&executors);
    ground.check_history(explosions.len() + 1 + runs).await;
}
