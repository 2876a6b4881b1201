//! Tests of the device memory of an executor, and of the memory's contents for jobs.

use std::{borrow::Cow, time::Duration};

use gpufleet_schema::{Arg, Block, Buffer, Data, Dtype, FailureCode, Launch, Program, Task};
use gpufleet_worker::executor::{Executor, ExecutorJob, ExecutorOptions, LostCause, RunError};
use tokio_util::sync::CancellationToken;

use crate::harness::{
    add_one, buffer, fail, job, launch, misbehaving, options, poll_until, ptx_task, staged, start, succeed, u32_arg,
    u32s, zeros,
};

const PTX: &str = include_str!("memory.ptx");
const WORDS: u32 = 4096;
const PATTERN: u32 = 0xa5a5_a5a5;

fn copies(to: &str, from: &str) -> Task<'static> {
    let mut task = ptx_task(PTX);
    let mut launch = launch("copies", 1, vec![buffer(to), buffer(from), u32_arg(WORDS)]);
    launch.block = Block::Threads(vec![1]);
    task.launches = vec![launch];
    task
}

/// Returns a task that leaves a pattern in two buffers.
fn leaves_a_pattern() -> Task<'static> {
    let mut task = copies("copy", "pattern");
    let mut pattern = zeros("pattern", Dtype::U32, WORDS.into());
    pattern.data = Data::Fill(PATTERN.into());
    task.buffers = vec![pattern, zeros("copy", Dtype::U32, WORDS.into())];
    task.outputs = vec!["copy".to_owned()];
    task
}

/// Returns a task that reads memory which it never wrote, and returns a buffer that it never touched.
fn reads_what_it_did_not_write() -> Task<'static> {
    let mut task = copies("seen", "scratch");
    let buffers = ["scratch", "seen", "untouched"];
    task.buffers = buffers.iter().map(|name| zeros(name, Dtype::U32, WORDS.into())).collect();
    task.outputs = vec!["seen".to_owned(), "untouched".to_owned()];
    task
}

#[tokio::test]
async fn a_job_finds_zeros_where_another_left_its_data() {
    let executor = start().await;
    for _ in 0..3 {
        assert_eq!(u32s(&succeed(&executor, &leaves_a_pattern()).await[0]), [PATTERN; WORDS as usize]);
        let held = executor.memory().held;
        for output in succeed(&executor, &reads_what_it_did_not_write()).await {
            assert_eq!(u32s(&output), [0; WORDS as usize], "{}", staged(&output).name);
        }
        let buffer = u64::from(WORDS) * 4;
        assert!(executor.memory().held <= held + buffer, "two of its three buffers were the other job's");
    }
}

/// Returns a task whose kernel needs 64 KiB of local memory per thread, of which the context already has 1 KiB. The device has one core
/// here and can run 2048 threads at once.
fn large_frame() -> Task<'static> {
    let mut task = ptx_task(PTX);
    task.launches = vec![launch("large_frame", 1, vec![])];
    task
}

const LARGE_FRAME_BYTES: u64 = 63 * 1024 * 2048;

#[tokio::test]
async fn local_memory_of_kernels_is_of_an_executors_share() {
    const MIB: u64 = 1 << 20;
    let start = |share| Executor::start(ExecutorOptions { memory_bytes_max: Some(share), ..options() });
    let (executor, _) = start(LARGE_FRAME_BYTES - 1).await.unwrap();
    let failure = fail(&executor, &large_frame()).await;
    assert_eq!(failure.code, FailureCode::OutOfMemory);
    let said =
        format!("needs {LARGE_FRAME_BYTES} bytes of device memory ({LARGE_FRAME_BYTES} of them for the local memory");
    assert!(failure.message.contains(&said), "{}", failure.message);
    succeed(&executor, &add_one(1000, 1)).await;

    let (executor, _) = start(LARGE_FRAME_BYTES + MIB).await.unwrap();
    let half = 1 << 17;
    succeed(&executor, &add_one(2 * half + 1, 1)).await;
    succeed(&executor, &large_frame()).await;
    succeed(&executor, &large_frame()).await;
    let now = executor.memory();
    assert_eq!(now.held, now.cached, "jobs can't have it for buffers");
    succeed(&executor, &add_one(2 * half, 1)).await;
    assert_eq!(fail(&executor, &add_one(2 * half + 1, 1)).await.code, FailureCode::OutOfMemory, "it stays");
}

#[tokio::test]
async fn local_memory_of_kernels_is_not_taken_from_other_executors() {
    let executor = start().await;
    let task = large_frame();
    for (cache_bytes_max, fits) in [(LARGE_FRAME_BYTES - 1, false), (LARGE_FRAME_BYTES, true), (0, true)] {
        let finished = executor.run(ExecutorJob { cache_bytes_max, ..job(&task) }).await.unwrap();
        assert_eq!(finished.outcome.is_ok(), fits, "{cache_bytes_max}");
    }
}

async fn given_back(executor: &Executor, free: u64) {
    executor.give_back();
    poll_until("everything given back", || {
        let now = executor.memory();
        (now.held, now.cached, now.free) == (0, 0, free)
    })
    .await;
}

#[tokio::test]
async fn what_an_executor_keeps_is_told_before_the_job_ends_and_goes_when_it_is_asked_back() {
    let executor = start().await;
    let first = executor.memory();
    assert_eq!((first.held, first.cached), (0, 0));
    assert!(first.free > 0 && first.free <= executor.device().memory_bytes);
    for _ in 0..2 {
        succeed(&executor, &add_one(1000, 1)).await;
        let now = executor.memory();
        assert_eq!(now.held, now.cached, "no job has any of it");
        assert_eq!(now.cached, 4000 + crate::harness::PTX.len() as u64, "the buffer and the module");
        assert!(now.free < first.free);
        given_back(&executor, first.free).await;
    }
}

#[tokio::test]
async fn a_job_leaves_no_more_kept_than_it_is_allowed() {
    let executor = start().await;
    let module = crate::harness::PTX.len() as u64;
    for (count, cache_bytes_max, kept) in [
        (1000, u64::MAX, 4000),
        (2000, u64::MAX, 4000 + 8000),
        (3000, 4000 + module, 4000 + 12_000),
        (1000, 0, 4000),
        (1000, 0, 4000),
    ] {
        let task = add_one(count, 1);
        let finished = executor.run(ExecutorJob { cache_bytes_max, ..job(&task) }).await.unwrap();
        finished.outcome.unwrap();
        assert_eq!(executor.memory().cached, kept + module, "{count} words beside {cache_bytes_max} bytes");
    }
}

/// Like a GPU's driver, the emulator delays a free until running kernels have ended.
#[tokio::test]
async fn a_job_that_has_others_memory_given_back_first_does_not_hold_up_who_needs_none() {
    let executor = start().await;
    let (small, large, other) = (add_one(1000, 1), add_one(2000, 1), add_one(3000, 1));
    succeed(&executor, &small).await;
    succeed(&executor, &large).await;
    let spinning = misbehaving("spin");
    let cancel = CancellationToken::new();
    let long = executor.run(ExecutorJob { cancel: &cancel, ..job(&spinning) });
    // Before this job gets a new block, the larger one of the two cached blocks must be freed.
    let giving_back = async {
        poll_until("the long job has its memory", || executor.memory().held > executor.memory().cached).await;
        executor.run(ExecutorJob { cache_bytes_max: 4000, ..job(&other) }).await
    };
    let going_on = async {
        for _ in 0..20 {
            assert_eq!(u32s(&succeed(&executor, &small).await[0]), [1; 1000]);
        }
        cancel.cancel();
    };
    let (long, _, ()) = tokio::join!(long, giving_back, going_on);
    assert!(matches!(long, Err(RunError::Cancelled)), "{long:?}");
}

/// Runs a job that never ends. Beside it, runs jobs with a shorter time limit until one of them has to wait for the first job. Checks that
/// this one is lost with the first job at its end, and is not killed at its own limit.
async fn assert_not_cut(executor: &Executor, cache_bytes_max: u64, task: impl Fn(u32) -> Task<'static>) {
    let spinning = misbehaving("spin");
    let long = executor.run(ExecutorJob { time_limit: Duration::from_secs(7), ..job(&spinning) });
    let waiting = async {
        poll_until("the long job has its memory", || executor.memory().held > executor.memory().cached).await;
        // The first jobs may end before the long job's kernel starts.
        for number in 0.. {
            let task = task(number);
            let waiting = ExecutorJob { time_limit: Duration::from_secs(3), cache_bytes_max, ..job(&task) };
            match executor.run(waiting).await {
                Ok(finished) => drop(finished.outcome.expect("it is not cut")),
                Err(lost) => return lost,
            }
        }
        unreachable!("the long job's kernel comes some time")
    };
    let (long, waiting) = tokio::join!(long, waiting);
    let long = long.expect("it ends at its limit").outcome.expect_err("its kernel never ends");
    assert_eq!(long.code, FailureCode::TimeLimit);
    assert!(matches!(waiting, RunError::Lost { cause: LostCause::Neighbour, .. }), "{waiting}");
}

/// Like a GPU's driver, the emulator delays a free until running kernels have ended.
#[tokio::test]
async fn a_job_that_waits_for_a_neighbours_kernel_is_not_cut_for_it() {
    let executor = start().await;
    succeed(&executor, &add_one(1000, 1)).await;
    // Each job needs memory of its own, so the cached block of the previous one must be freed.
    assert_not_cut(&executor, 0, |number| add_one(2000 + number, 1)).await;
}

#[tokio::test]
async fn a_job_whose_module_waits_for_a_neighbours_kernel_is_not_cut_for_it() {
    let mut options = options();
    options.environment.push(("GPUFLEET_EMULATOR_FAULTS".to_owned(), "load:2+=wait".to_owned()));
    let (executor, _) = Executor::start(options).await.unwrap();
    let program = |number| Program::Ptx(format!("{PTX}\n// {number}\n").into());
    assert_not_cut(&executor, u64::MAX, |number| Task { program: program(number), ..leaves_a_pattern() }).await;
}

/// The emulator behaves like a driver that holds a lock: memory given back between jobs waits for the first job, and every later job waits
/// for both.
#[tokio::test]
async fn a_job_that_comes_while_memory_given_back_waits_for_a_neighbours_kernel_is_not_cut_for_it() {
    let mut options = options();
    options.environment.push(("GPUFLEET_EMULATOR_FAULTS".to_owned(), "wait:1+=hold".to_owned()));
    let (executor, _) = Executor::start(options).await.unwrap();
    let mut needs_nothing = ptx_task(crate::harness::PTX);
    needs_nothing.launches = vec![launch("nothing", 1, vec![])];
    succeed(&executor, &needs_nothing).await;
    succeed(&executor, &add_one(1000, 1)).await;
    // Giving memory back blocks the jobs, unless it comes before the long job's kernel.
    assert_not_cut(&executor, u64::MAX, |_| {
        executor.give_back();
        needs_nothing.clone()
    })
    .await;
}

/// Like a GPU's driver, the emulator delays unloading until running kernels have ended.
#[tokio::test]
async fn a_program_that_is_evicted_while_another_runs_delays_no_job() {
    let executor = start().await;
    // More programs than an executor may hold.
    let texts: Vec<String> = (0..140).map(|number| format!("{PTX}\n// {number}\n")).collect();
    let task = |text| Task { program: Program::Ptx(Cow::Borrowed(text)), ..leaves_a_pattern() };
    for text in &texts[..120] {
        succeed(&executor, &task(text)).await;
    }
    let spinning = misbehaving("spin");
    let cancel = CancellationToken::new();
    let long = executor.run(ExecutorJob { cancel: &cancel, ..job(&spinning) });
    let others = async {
        poll_until("the long job has its memory", || executor.memory().held > executor.memory().cached).await;
        for text in &texts[120..] {
            succeed(&executor, &task(text)).await;
        }
        cancel.cancel();
    };
    let (long, ()) = tokio::join!(long, others);
    assert!(matches!(long, Err(RunError::Cancelled)), "{long:?}");
}

#[tokio::test]
async fn executors_give_back_while_jobs_run() {
    let executor = start().await;
    let tasks: Vec<_> = (1..=40).map(|count| add_one(count * 100, 2)).collect();
    let jobs = tasks.iter().map(|task| async {
        executor.give_back();
        u32s(&succeed(&executor, task).await[0])
    });
    for outputs in futures::future::join_all(jobs).await {
        assert!(outputs.iter().all(|value| *value == 2));
    }
    executor.measure();
    let free = executor.device().memory_bytes;
    poll_until("nothing of jobs that ended", || executor.memory().held == executor.memory().cached).await;
    given_back(&executor, free).await;
}

#[tokio::test]
async fn what_a_job_leaves_while_the_executor_reports_is_told_too() {
    let executor = start().await;
    let (task, kept) = (add_one(1000, 1), 4000 + crate::harness::PTX.len() as u64);
    for _ in 0..2000 {
        // The report may be made while the job has all its memory, and be sent after the job's end.
        executor.measure();
        succeed(&executor, &task).await;
        poll_until("all that is kept", || executor.memory().cached == kept).await;
    }
}

/// PTX of kernels that return the address of a buffer, and that read and write at any address.
const POINTERS: &str = ".version 8.0\n.target sm_80\n.address_size 64\n\
    .visible .entry tell(.param .u64 out, .param .u64 other) {\n.reg .b64 %d<3>;\n\
    ld.param.u64 %d0, [out];\nld.param.u64 %d1, [other];\nst.global.u64 [%d0], %d1;\nret;\n}\n\
    .visible .entry peek(.param .u64 out, .param .u64 address) {\n.reg .b64 %d<3>;\n.reg .b32 %r;\n\
    ld.param.u64 %d0, [out];\nld.param.u64 %d1, [address];\nld.global.u32 %r, [%d1];\nst.global.u32 [%d0], %r;\nret;\n}\n\
    .visible .entry poke(.param .u64 out, .param .u64 address) {\n.reg .b64 %d<3>;\n.reg .b32 %r;\n\
    ld.param.u64 %d1, [address];\nmov.u32 %r, 7;\nst.global.u32 [%d1], %r;\nret;\n}\n";

fn pointers(entry: &str, other: Arg, buffers: Vec<Buffer<'static>>) -> Task<'static> {
    let launch = Launch { block: Block::Threads(vec![1]), ..launch(entry, 1, vec![buffer("out"), other]) };
    let outputs = vec!["out".to_owned()];
    Task { buffers, outputs, launches: vec![launch], ..ptx_task(POINTERS) }
}

#[tokio::test]
async fn a_kernel_reaches_the_memory_of_its_own_job_alone() {
    // The address belongs to another job, whose memory stays cached in the executor.
    for entry in ["peek", "poke"] {
        let executor = start().await;
        let told = vec![zeros("out", Dtype::U64, 1), zeros("secret", Dtype::U32, 5000)];
        let outputs = succeed(&executor, &pointers("tell", buffer("secret"), told)).await;
        let address = u64::from_le_bytes(staged(&outputs[0]).bytes[..].try_into().unwrap());
        let own = vec![zeros("out", Dtype::U32, 1)];
        let failure = fail(&executor, &pointers(entry, Arg::Scalar(Dtype::U64, address.into()), own)).await;
        assert_eq!(failure.code, FailureCode::KernelFault, "{failure:?}");
        let report = failure.detail.expect("the emulated device reports faults");
        assert!(report.contains("the address is in memory of another job, or of none"), "{report}");
    }
    // A kernel can access its own job's memory by address.
    let executor = start().await;
    let own = vec![zeros("out", Dtype::U32, 1), zeros("secret", Dtype::U32, 5000)];
    succeed(&executor, &pointers("poke", buffer("secret"), own)).await;
}
