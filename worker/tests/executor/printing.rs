//! Tests that the output of kernels is returned with its own job, whatever runs beside the job and however it ends.

use std::{pin::pin, time::Duration};

use futures::{future::join_all, join, poll};
use gpufleet_schema::{FailureCode, PrintfOutput, Task, bounds::PRINTF_OUTPUT_BYTES_MAX};
use gpufleet_worker::executor::{Executor, ExecutorJob, Finished, LostCause, Printout, RunError};
use tokio_util::sync::CancellationToken;

use crate::harness::{add_one, job, launch, misbehaving, poll_until, ptx_task, start, u32_arg, u32s};

const SAY: &str = include_str!("say.ptx");

/// What the kernel does after it has printed.
#[derive(Clone, Copy)]
enum Then {
    Return = 0,
    Trap = 1,
    Spin = 2,
}

fn say(mark: u32, lines: u32, then: Then) -> Task<'static> {
    let mut task = ptx_task(SAY);
    task.launches = vec![launch("say", 1, vec![u32_arg(mark), u32_arg(lines), u32_arg(then as u32)])];
    task.launches[0].block = gpufleet_schema::Block::Threads(vec![1]);
    task
}

fn said(mark: u32, lines: u32) -> String {
    (0..lines).map(|line| format!("job {mark} line {line}\n")).collect()
}

async fn run(executor: &Executor, task: &Task<'_>) -> (Result<Finished, RunError>, Option<PrintfOutput>) {
    run_as(executor, job(task)).await
}

async fn run_as(executor: &Executor, job: ExecutorJob<'_>) -> (Result<Finished, RunError>, Option<PrintfOutput>) {
    let printout = Printout::default();
    let result = executor.run(ExecutorJob { printout: Some(&printout), ..job }).await;
    (result, printout.text())
}

fn whole(text: String) -> Option<PrintfOutput> {
    Some(PrintfOutput { text, dropped_bytes: 0, is_tail: false })
}

#[tokio::test]
async fn each_job_gets_what_it_printed_and_a_neighbour_that_prints_nothing_gets_nothing() {
    let executor = start().await;
    let silent = add_one(1000, 20);
    let tasks: Vec<_> = (0..12).map(|mark| say(mark, 50 * (mark % 3), Then::Return)).collect();
    let printing = join_all(tasks.iter().map(|task| run(&executor, task)));
    let beside = join_all((0..6).map(|_| executor.run(job(&silent))));
    let (printed, beside) = join!(printing, beside);
    for (mark, (result, printed)) in (0..).zip(printed) {
        result.unwrap().outcome.unwrap();
        let lines = 50 * (mark % 3);
        assert_eq!(printed, if lines == 0 { None } else { whole(said(mark, lines)) });
    }
    for finished in beside {
        assert_eq!(u32s(&finished.unwrap().outcome.unwrap()[0]), [20; 1000]);
    }
    // A job that prints nothing, right after one that printed.
    let (result, printed) = run(&executor, &silent).await;
    result.unwrap().outcome.unwrap();
    assert_eq!(printed, None);
}

#[tokio::test]
async fn a_job_that_prints_nothing_runs_beside_one_that_prints() {
    let executor = start().await;
    let (cancel, spinning) = (CancellationToken::new(), say(7, 1, Then::Spin));
    let printing = run_as(&executor, ExecutorJob { cancel: &cancel, ..job(&spinning) });
    let beside = async {
        let finished = executor.run(job(&add_one(10, 1))).await.unwrap();
        assert_eq!(u32s(&finished.outcome.unwrap()[0]), [1; 10]);
        // Another job that may print waits for its turn.
        let second = say(8, 1, Then::Return);
        let mut waiting = pin!(run(&executor, &second));
        assert!(poll!(waiting.as_mut()).is_pending());
        let finished = executor.run(job(&add_one(10, 1))).await.unwrap();
        assert_eq!(u32s(&finished.outcome.unwrap()[0]), [1; 10]);
        assert!(poll!(waiting.as_mut()).is_pending());
        cancel.cancel();
        assert!(waiting.await.0.is_err(), "the executor was killed");
    };
    let ((result, _), ()) = join!(printing, beside);
    assert!(matches!(result, Err(RunError::Cancelled)));
}

#[tokio::test]
async fn the_first_64_kib_are_kept_and_the_rest_is_counted() {
    let executor = start().await;
    let lines = 20_000;
    let (result, printed) = run(&executor, &say(1, lines, Then::Return)).await;
    result.unwrap().outcome.unwrap();
    let (printed, whole) = (printed.unwrap(), said(1, lines));
    assert!(whole.len() > 4 * PRINTF_OUTPUT_BYTES_MAX);
    assert_eq!(printed.text, whole[..PRINTF_OUTPUT_BYTES_MAX]);
    assert_eq!(printed.dropped_bytes as usize, whole.len() - PRINTF_OUTPUT_BYTES_MAX);
    // The text of the next job starts empty.
    assert_eq!(run(&executor, &say(2, 3, Then::Return)).await.1, self::whole(said(2, 3)));
}

#[tokio::test]
async fn a_kernel_that_traps_shows_what_it_printed_before() {
    let executor = start().await;
    let (result, printed) = run(&executor, &say(3, 2, Then::Trap)).await;
    assert_eq!(result.unwrap().outcome.unwrap_err().code, FailureCode::KernelFault);
    assert_eq!(printed, whole(said(3, 2)));
}

#[tokio::test]
async fn a_job_that_a_neighbours_fault_brings_down_shows_what_it_printed() {
    let executor = start().await;
    let spinning = say(4, 2, Then::Spin);
    let (printout, faulting) = (Printout::default(), misbehaving("write_beyond"));
    let printing = executor.run(ExecutorJob { printout: Some(&printout), ..job(&spinning) });
    let beside = async {
        poll_until("all is printed", || printout.text() == whole(said(4, 2))).await;
        executor.run(job(&faulting)).await
    };
    let (printing, beside) = join!(printing, beside);
    assert_eq!(beside.unwrap().outcome.unwrap_err().code, FailureCode::KernelFault, "the emulator names the kernel");
    assert!(matches!(printing, Err(RunError::Lost { cause: LostCause::Neighbour, .. })), "{printing:?}");
    assert_eq!(printout.text(), whole(said(4, 2)));
}

#[tokio::test]
async fn a_job_that_is_cut_at_its_time_limit_shows_what_it_printed() {
    let executor = start().await;
    let spinning = say(5, 3, Then::Spin);
    let limit = ExecutorJob { time_limit: Duration::from_secs(5), ..job(&spinning) };
    let (result, printed) = run_as(&executor, limit).await;
    assert_eq!(result.unwrap().outcome.unwrap_err().code, FailureCode::TimeLimit);
    assert_eq!(printed, whole(said(5, 3)));
}

#[tokio::test]
async fn a_job_that_is_cancelled_or_loses_its_executor_shows_what_it_printed() {
    for cancels in [true, false] {
        let executor = start().await;
        let (cancel, printout, spinning) = (CancellationToken::new(), Printout::default(), say(6, 4, Then::Spin));
        let spin = ExecutorJob { printout: Some(&printout), cancel: &cancel, ..job(&spinning) };
        let ending = async {
            // The text arrives while the kernel is still running.
            poll_until("all is printed", || printout.text() == whole(said(6, 4))).await;
            match cancels {
                true => cancel.cancel(),
                false => executor.kill(),
            }
        };
        let (result, ()) = join!(executor.run(spin), ending);
        match cancels {
            true => assert!(matches!(result, Err(RunError::Cancelled)), "{result:?}"),
            false => assert!(matches!(result, Err(RunError::Lost { .. })), "{result:?}"),
        }
        assert_eq!(printout.text(), whole(said(6, 4)));
    }
}
