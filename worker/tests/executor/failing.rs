//! Tests of failing jobs and their failures.

use std::time::{Duration, Instant};

use gpufleet_schema::{Block, Dtype, FailureCode, Grid, Program, Task, Verdict};
use gpufleet_worker::executor::{Executor, ExecutorJob, ExecutorOptions, LostCause, RunError};
use tokio_util::sync::CancellationToken;

use crate::harness::{
    PTX, add_one, buffer, fail, job, lose, misbehaving, options, ptx_task, start, succeed, u32_arg, u32s, zeros,
};

/// Checks that the executor still runs jobs.
async fn still_works(executor: &Executor) {
    assert_eq!(u32s(&succeed(executor, &add_one(10, 1)).await[0]), [1; 10]);
}

#[tokio::test]
async fn an_unknown_entry_is_answered_with_the_known_ones() {
    let executor = start().await;
    let failure = fail(&executor, &misbehaving("add_two")).await;
    assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::LaunchError));
    assert_eq!(
        failure.message,
        "the module has no entry \"add_two\"; its entries are add_one, write_beyond, spin, stop_here, nothing"
    );
    still_works(&executor).await;
}

#[tokio::test]
async fn arguments_must_be_as_many_and_as_long_as_the_kernel_takes() {
    let executor = start().await;
    let mut task = add_one(10, 1);
    task.launches[0].args.pop();
    let failure = fail(&executor, &task).await;
    assert_eq!(failure.code, FailureCode::LaunchError);
    assert_eq!(failure.message, "launches[0] (add_one): 1 arguments given, but the kernel takes 2");
    task.launches[0].args.push(buffer("data"));
    let failure = fail(&executor, &task).await;
    assert_eq!(failure.message, "launches[0] (add_one): args[1] has 8 bytes, but the kernel's parameter has 4");
    still_works(&executor).await;
}

#[tokio::test]
async fn a_kernel_in_a_string_does_not_hide_the_parameters_of_the_real_one() {
    let executor = start().await;
    let real = ".visible .entry add_one(";
    let tricky = PTX.replace(real, &format!(".file 1 \"x .entry add_one() \"\n{real}"));
    let mut task = ptx_task(&tricky);
    let good = add_one(10, 1);
    (task.buffers, task.launches, task.outputs) = (good.buffers, good.launches, good.outputs);
    assert_eq!(u32s(&succeed(&executor, &task).await[0]), [1; 10]);
    task.launches[0].args.clear();
    let failure = fail(&executor, &task).await;
    assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::LaunchError));
    assert_eq!(failure.message, "launches[0] (add_one): 0 arguments given, but the kernel takes 2");
    still_works(&executor).await;
}

#[tokio::test]
async fn bad_ptx_is_answered_with_its_line() {
    let executor = start().await;
    let broken = PTX.replace("mul.wide.u32 %rd3, %r5, 4;", "frobnicate.u32 %rd3, %r5, 4;");
    let line = 1 + broken.lines().position(|line| line.contains("frobnicate")).unwrap() as u32;
    let mut task = ptx_task(&broken);
    let good = add_one(10, 1);
    (task.buffers, task.launches) = (good.buffers, good.launches);
    let failure = fail(&executor, &task).await;
    assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::LoadError));
    assert_eq!(failure.line, Some(line), "{failure:?}");
    assert!(failure.message.contains("frobnicate"), "{failure:?}");
    still_works(&executor).await;
}

#[tokio::test]
async fn a_grid_that_the_device_can_not_launch_is_refused_in_numbers() {
    let executor = start().await;
    let mut task = add_one(10, 1);
    task.launches[0].grid = Grid::Cover(vec![1, 70_000]);
    task.launches[0].block = Block::Threads(vec![1]);
    let failure = fail(&executor, &task).await;
    assert_eq!(failure.code, FailureCode::LaunchError);
    assert!(failure.message.contains("70000 blocks in y; the device allows 1 to 65535"), "{}", failure.message);
    still_works(&executor).await;
}

#[tokio::test]
async fn out_of_memory_is_answered_with_what_was_wanted_and_what_is_free() {
    let mut options = options();
    options.environment.push(("GPUFLEET_EMULATOR_MEMORY".to_owned(), "64MiB".to_owned()));
    let (executor, device) = Executor::start(options).await.unwrap();
    assert_eq!(device.memory_bytes, 64 << 20);
    let mut task = add_one(10, 1);
    task.buffers.push(zeros("large", Dtype::U8, 100 << 20));
    let failure = fail(&executor, &task).await;
    assert_eq!((failure.verdict, failure.code), (Verdict::OutOfMemory, FailureCode::OutOfMemory));
    assert!(failure.message.contains("needs 104857640 bytes of device memory"), "{}", failure.message);
    still_works(&executor).await;
    // There is no room for forty megabytes twice, so one job waits for the other.
    let mut task = add_one(10, 1);
    task.buffers.push(zeros("large", Dtype::U8, 40 << 20));
    let (first, second) = tokio::join!(succeed(&executor, &task), succeed(&executor, &task));
    assert_eq!((u32s(&first[0]), u32s(&second[0])), (vec![1; 10], vec![1; 10]));
}

#[tokio::test]
async fn a_jobs_own_memory_limit_holds() {
    let executor = start().await;
    let mut task = add_one(1000, 1);
    task.limits.memory_bytes_max = Some(3999);
    let failure = fail(&executor, &task).await;
    assert_eq!((failure.verdict, failure.code), (Verdict::OutOfMemory, FailureCode::OutOfMemory));
    assert_eq!(failure.message, "the buffers need 4000 bytes, but limits.memory_bytes_max is 3999");
}

#[tokio::test]
async fn an_output_that_no_reply_can_carry_is_refused_before_it_is_computed() {
    let executor = start().await;
    let mut task = add_one(10, 1);
    task.buffers.push(zeros("large", Dtype::U8, 17 << 20));
    task.outputs.push("large".to_owned());
    assert_eq!(fail(&executor, &task).await.code, FailureCode::OutputTooLarge);
}

#[tokio::test]
async fn a_fault_is_answered_with_its_report_and_a_new_executor_works() {
    let executor = start().await;
    still_works(&executor).await;
    let failure = fail(&executor, &misbehaving("write_beyond")).await;
    assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::KernelFault));
    assert!(failure.message.contains("write_beyond") && failure.message.contains("(700)"), "{}", failure.message);
    let report = failure.detail.expect("the emulator accounts for it");
    assert!(report.contains("`write_beyond`") && report.contains("thread (0, 0, 0)"), "{report}");
    assert!(executor.lost().await.reason.contains("CUDA_ERROR_ILLEGAL_ADDRESS"));
    let RunError::Lost { was_running, .. } = lose(&executor, &add_one(1, 1)).await else { panic!("not lost") };
    assert!(!was_running);
    still_works(&start().await).await;
}

#[tokio::test]
async fn a_trap_is_a_fault_too() {
    let executor = start().await;
    let failure = fail(&executor, &misbehaving("stop_here")).await;
    assert_eq!(failure.code, FailureCode::KernelFault);
    assert!(failure.message.contains("stop_here"), "{}", failure.message);
}

#[tokio::test]
async fn a_time_limit_kills_the_executor_and_spares_the_neighbours_the_blame() {
    let executor = start().await;
    let (spinning, waiting) = (misbehaving("spin"), misbehaving("spin"));
    let limited = async {
        let limited =
            gpufleet_worker::executor::ExecutorJob { time_limit: Duration::from_millis(300), ..job(&spinning) };
        executor.run(limited).await.expect("it has an outcome")
    };
    let started = Instant::now();
    let (limited, neighbour) = tokio::join!(limited, lose(&executor, &waiting));
    let failure = limited.outcome.unwrap_err();
    assert_eq!((failure.verdict, failure.code), (Verdict::Timeout, FailureCode::TimeLimit));
    assert!(started.elapsed() >= Duration::from_millis(300));
    let RunError::Lost { cause, was_running, .. } = neighbour else { panic!("not lost") };
    assert_eq!((cause, was_running), (LostCause::Neighbour, true));
}

#[tokio::test]
async fn a_job_at_its_time_limit_learns_where_its_threads_were() {
    let executor = start().await;
    let spinning = misbehaving("spin");
    let limited = ExecutorJob { time_limit: Duration::from_millis(300), ..job(&spinning) };
    let failure = executor.run(limited).await.expect("it has an outcome").outcome.unwrap_err();
    assert_eq!((failure.verdict, failure.code), (Verdict::Timeout, FailureCode::TimeLimit));
    let report = failure.detail.expect("the emulated device says where the threads were");
    let line = 1 + PTX.lines().position(|line| line.contains("ld.volatile.global.u32 %r1, [%rd2];")).unwrap();
    for part in ["it ran too long in kernel `spin`", "thread (0, 0, 0)", "PTX line"] {
        assert!(report.contains(part), "{part} is missing in: {report}");
    }
    let lines = line..line + 3;
    assert!(lines.into_iter().any(|line| report.contains(&format!("PTX line {line},"))), "{report}");
}

#[tokio::test]
async fn among_neighbours_the_emulator_names_the_one_to_blame() {
    let executor = start().await;
    let (spinning, faulting) = (misbehaving("spin"), misbehaving("write_beyond"));
    let (neighbour, failed) = tokio::join!(lose(&executor, &spinning), fail(&executor, &faulting));
    assert_eq!(failed.code, FailureCode::KernelFault);
    let RunError::Lost { cause, .. } = neighbour else { panic!("not lost") };
    assert_eq!(cause, LostCause::Neighbour);
}

/// Returns the PTX of a kernel `guilty` whose assert fails with these words.
fn asserting(words: &str) -> String {
    let bytes = words.bytes().chain([0]).map(|byte| byte.to_string()).collect::<Vec<_>>();
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n\
         .global .align 1 .b8 words[{}] = {{{}}};\n\
         .visible .entry guilty(.param .u64 data) {{\n.reg .b64 %rd<3>;\n\
         mov.u64 %rd1, words;\ncvta.global.u64 %rd2, %rd1;\n\
         {{\n.param .b64 p0;\n.param .b64 p1;\n.param .b32 p2;\n.param .b64 p3;\n.param .b64 p4;\n\
         st.param.b64 [p0], %rd2;\nst.param.b64 [p1], %rd2;\nst.param.b32 [p2], 7;\nst.param.b64 [p3], %rd2;\n\
         st.param.b64 [p4], 1;\ncall.uni __assertfail, (p0, p1, p2, p3, p4);\n}}\nret;\n}}\n",
        bytes.len(),
        bytes.join(", "),
    )
}

#[tokio::test]
async fn the_text_of_an_assert_blames_no_kernel() {
    for words in ["in kernel `nope`", "of kernel `nope`: "] {
        let executor = start().await;
        let ptx = asserting(words);
        let failure = fail(&executor, &Task { program: Program::Ptx(ptx.into()), ..misbehaving("guilty") }).await;
        assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::KernelFault));
        assert!(failure.message.starts_with("kernel guilty: CUDA_ERROR_ASSERT"), "{}", failure.message);
        assert!(failure.detail.is_some_and(|report| report.contains(words)), "its words are told to people");
    }
}

#[tokio::test]
async fn an_assert_that_names_a_neighbour_does_not_get_it_blamed() {
    let executor = start().await;
    let ptx = asserting("in kernel `spin`");
    let (spinning, faulting) =
        (misbehaving("spin"), Task { program: Program::Ptx(ptx.into()), ..misbehaving("guilty") });
    let (neighbour, failed) = tokio::join!(lose(&executor, &spinning), fail(&executor, &faulting));
    assert_eq!(failed.code, FailureCode::KernelFault);
    assert!(failed.message.starts_with("kernel guilty: "), "{}", failed.message);
    let RunError::Lost { cause, .. } = neighbour else { panic!("not lost") };
    assert_eq!(cause, LostCause::Neighbour);
}

#[tokio::test]
async fn two_that_run_the_faulting_kernel_are_both_suspects_until_one_runs_alone() {
    let executor = start().await;
    // The second job can't end before the first one's fault is detected, because it runs longer than that takes.
    let faulting = misbehaving("write_beyond");
    let mut innocent = add_one(10, 1);
    innocent.launches.push(misbehaving("spin").launches.remove(0));
    innocent.launches[1].args = vec![buffer("flag")];
    innocent.buffers.push(zeros("flag", Dtype::U32, 1));
    innocent.buffers.push(zeros("spare", Dtype::U32, 2));
    let mut later = misbehaving("write_beyond").launches.remove(0);
    later.args = vec![buffer("spare")];
    innocent.launches.push(later);
    let (first, second) = tokio::join!(lose(&executor, &innocent), lose(&executor, &faulting));
    for lost in [first, second] {
        let RunError::Lost { cause, .. } = lost else { panic!("not lost") };
        assert_eq!(cause, LostCause::Suspect);
    }
    let executor = start().await;
    let alone = gpufleet_worker::executor::ExecutorJob { alone: true, ..job(&faulting) };
    let failure = executor.run(alone).await.unwrap().outcome.unwrap_err();
    assert_eq!(failure.code, FailureCode::KernelFault);
}

#[tokio::test]
async fn a_cubin_that_is_none_is_refused() {
    let executor = start().await;
    let mut task = add_one(10, 1);
    task.program = Program::Cubin(b"\x7fELF and no more".to_vec().into());
    let failure = fail(&executor, &task).await;
    assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::LoadError));
    still_works(&executor).await;
}

#[tokio::test]
async fn more_shared_memory_than_the_device_has_is_refused() {
    let executor = start().await;
    let mut task = add_one(10, 1);
    task.launches[0].shared_bytes = 227 << 10;
    let failure = fail(&executor, &task).await;
    assert_eq!(failure.code, FailureCode::LaunchError);
    assert!(failure.message.contains("232448 bytes of shared memory"), "{}", failure.message);
    task.launches[0].shared_bytes = 100 << 10;
    task.launches[0].args = vec![buffer("data"), u32_arg(10)];
    assert_eq!(u32s(&succeed(&executor, &task).await[0]), [1; 10]);
}

#[tokio::test]
async fn a_cancelled_job_ends_with_its_executor_and_spares_the_neighbours_the_blame() {
    let executor = start().await;
    let (spinning, waiting) = (misbehaving("spin"), misbehaving("spin"));
    let cancel = CancellationToken::new();
    let cancelled = executor.run(ExecutorJob { cancel: &cancel, ..job(&spinning) });
    let neighbour = async {
        let neighbour = lose(&executor, &waiting);
        // Once the neighbour is polled, both jobs have been sent.
        cancel.cancel();
        neighbour.await
    };
    let (cancelled, neighbour) = tokio::join!(cancelled, neighbour);
    assert!(matches!(cancelled, Err(RunError::Cancelled)), "{cancelled:?}");
    let RunError::Lost { cause, .. } = neighbour else { panic!("not lost") };
    assert_eq!(cause, LostCause::Neighbour);
}

#[tokio::test]
async fn a_small_job_comes_and_goes_while_others_run() {
    let executor = start().await;
    let long = misbehaving("spin");
    let cancel = CancellationToken::new();
    let run_long = || executor.run(ExecutorJob { cancel: &cancel, ..job(&long) });
    let small = async {
        for number in 1..=20 {
            assert_eq!(u32s(&succeed(&executor, &add_one(64, number)).await[0]), vec![number; 64]);
        }
        cancel.cancel();
    };
    // One stream is left for the small jobs.
    let (first, second, third, ()) = tokio::join!(run_long(), run_long(), run_long(), small);
    for long in [first, second, third] {
        assert!(matches!(long, Err(RunError::Cancelled | RunError::Lost { .. })), "{long:?}");
    }
}

#[tokio::test]
async fn cancelling_a_job_that_waits_for_a_stream_affects_no_other_job() {
    let executor = Executor::start(ExecutorOptions { streams: 1, ..options() }).await.unwrap().0;
    let (long, waiting) = (misbehaving("spin"), add_one(1, 1));
    let limit = ExecutorJob { time_limit: Duration::from_secs(1), ..job(&long) };
    let cancel = CancellationToken::new();
    let (long, waiting) = tokio::join!(executor.run(limit), async {
        let waiting = executor.run(ExecutorJob { cancel: &cancel, ..job(&waiting) });
        let mut waiting = std::pin::pin!(waiting);
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        cancel.cancel();
        waiting.await
    });
    assert!(matches!(waiting, Err(RunError::Cancelled)), "{waiting:?}");
    assert_eq!(long.unwrap().outcome.unwrap_err().code, FailureCode::TimeLimit, "it ran to its own end");
}
