//! Helpers that start executors and build tasks.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use gpufleet_schema::{Arg, Block, Buffer, Data, Dtype, Failure, Grid, Launch, Program, Task};
use gpufleet_worker::{
    compiler::Compiler,
    executor::{CudaSpec, Executor, ExecutorJob, ExecutorOptions, Finished, FinishedOutput, OutputBytes, RunError},
    scheduler::PoolId,
};

/// Default time limit of a job: longer than any job here takes on a loaded machine.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(60);

/// PTX of small kernels with all kinds of behaviour.
pub(crate) const PTX: &str = include_str!("kernels.ptx");

/// PTX of a kernel that counts in a variable of its module.
pub(crate) const COUNTER: &str = include_str!("counter.ptx");

pub(crate) fn executable() -> PathBuf {
    env!("CARGO_BIN_EXE_gpufleet-worker").into()
}

pub(crate) fn options() -> ExecutorOptions {
    ExecutorOptions {
        executable: Some(executable()),
        compiler: Arc::new(Compiler::new(None).with_executable(executable())),
        // Tests run in parallel, so each device gets one core.
        environment: vec![("GPUFLEET_EMULATOR_THREADS".to_owned(), "1".to_owned())],
        ..ExecutorOptions::new(0, CudaSpec::Emulated)
    }
}

pub(crate) async fn start() -> Executor {
    Executor::start(options()).await.expect("the emulator is built beside the worker").0
}

pub(crate) fn job<'a>(task: &'a Task<'a>) -> ExecutorJob<'a> {
    task.check().expect("tests send tasks that pass the check");
    // The token is leaked, because it must outlive the test's borrow. It has only a few bytes.
    ExecutorJob {
        task,
        pool: PoolId(0),
        program: None,
        compiled: None,
        time_limit: TIME_LIMIT,
        alone: false,
        printout: None,
        progress: None,
        cache_bytes_max: u64::MAX,
        blobs: None,
        cancel: Box::leak(Box::default()),
    }
}

pub(crate) async fn run(executor: &Executor, task: &Task<'_>) -> Finished {
    let task = task.clone();
    executor.run(job(&task)).await.expect("the executor lives")
}

pub(crate) async fn succeed(executor: &Executor, task: &Task<'_>) -> Vec<FinishedOutput> {
    run(executor, task).await.outcome.expect("the job succeeds")
}

pub(crate) async fn fail(executor: &Executor, task: &Task<'_>) -> Failure {
    run(executor, task).await.outcome.expect_err("the job fails")
}

pub(crate) async fn lose(executor: &Executor, task: &Task<'_>) -> RunError {
    executor.run(job(task)).await.expect_err("the executor is lost")
}

pub(crate) fn ptx_task<'a>(ptx: &'a str) -> Task<'a> {
    Task::new(Program::Ptx(ptx.into()))
}

pub(crate) fn floats(name: &str, values: &[f32]) -> Buffer<'static> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Buffer::new(name, Dtype::F32, vec![values.len() as u64], Data::Inline(bytes.into()))
}

pub(crate) fn zeros(name: &str, dtype: Dtype, count: u64) -> Buffer<'static> {
    Buffer::new(name, dtype, vec![count], Data::Zeros)
}

pub(crate) fn launch(entry: &str, threads: u64, args: Vec<Arg>) -> Launch {
    Launch { block: Block::Threads(vec![64]), args, ..Launch::new(entry, Grid::Cover(vec![threads])) }
}

pub(crate) fn buffer(name: &str) -> Arg {
    Arg::Buffer(name.to_owned())
}

pub(crate) fn u32_arg(value: u32) -> Arg {
    Arg::Scalar(Dtype::U32, value.into())
}

/// Returns a task that adds one to each of `count` integers, `repeat` times.
pub(crate) fn add_one(count: u32, repeat: u32) -> Task<'static> {
    let mut task = ptx_task(PTX);
    task.buffers = vec![zeros("data", Dtype::U32, u64::from(count))];
    task.launches =
        vec![Launch { repeat, ..launch("add_one", u64::from(count), vec![buffer("data"), u32_arg(count)]) }];
    task.outputs = vec!["data".to_owned()];
    task
}

/// Returns a task that counts `threads` threads in the module's variable, and writes the highest count that any thread
/// saw.
pub(crate) fn count(threads: u32) -> Task<'static> {
    let mut task = ptx_task(COUNTER);
    task.buffers = vec![zeros("seen", Dtype::U32, 1)];
    task.launches = vec![launch("count", u64::from(threads), vec![buffer("seen")])];
    task.outputs = vec!["seen".to_owned()];
    task
}

/// Returns a task that runs a kernel with one buffer of four bytes.
pub(crate) fn misbehaving(entry: &str) -> Task<'static> {
    let mut task = ptx_task(PTX);
    task.buffers = vec![zeros("data", Dtype::U32, 1)];
    task.launches = vec![Launch { block: Block::Threads(vec![1]), ..launch(entry, 1, vec![buffer("data")]) }];
    task
}

/// Returns an output that must not be in the blob store.
pub(crate) fn staged(output: &FinishedOutput) -> &OutputBytes {
    match output {
        FinishedOutput::Staged(output) => output,
        FinishedOutput::Stored(output, _) => panic!("it was stored: {output:?}"),
    }
}

pub(crate) fn u32s(output: &FinishedOutput) -> Vec<u32> {
    let output = staged(output);
    assert_eq!(output.dtype, Dtype::U32);
    output.bytes.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("chunks of four"))).collect()
}

pub(crate) fn f32s(output: &FinishedOutput) -> Vec<f32> {
    let output = staged(output);
    assert_eq!(output.dtype, Dtype::F32);
    output.bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("chunks of four"))).collect()
}

pub(crate) async fn poll_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn process_exists(pid: u32) -> bool {
    // A zombie counts as gone: only its parent has not reaped it yet.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}
