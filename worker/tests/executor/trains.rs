//! Tests of trains: jobs that are sent together and run one after the other on one stream.

use std::time::{Duration, Instant};

use futures::future::join_all;
use gpufleet_schema::{FailureCode, Task};
use gpufleet_worker::executor::{Executor, ExecutorJob, Finished, LostCause, RunError};
use tokio_util::sync::CancellationToken;

use crate::harness::{add_one, job, misbehaving, start, succeed, u32s};

type Ends = Vec<Option<Result<Finished, RunError>>>;

/// Runs these tasks in one train.
async fn ride(executor: &Executor, jobs: &[ExecutorJob<'_>]) -> Ends {
    let mut riders = executor.depart(jobs).await;
    executor.arrive(&mut riders).await;
    join_all(riders.into_iter().map(|rider| executor.finish(rider))).await
}

/// Runs these tasks in one train that gets as far as the job with this index. On a busy machine a train may be disbanded before.
async fn ride_to(index: usize, executor: &Executor, jobs: &[ExecutorJob<'_>]) -> Ends {
    loop {
        let ends = ride(executor, jobs).await;
        if ends[..=index].iter().all(Option::is_some) {
            return ends;
        }
    }
}

fn first_output(end: &Option<Result<Finished, RunError>>) -> Vec<u32> {
    match end {
        Some(Ok(Finished { outcome: Ok(outputs), .. })) => u32s(&outputs[0]),
        other => panic!("{other:?}"),
    }
}

fn failure(end: &Option<Result<Finished, RunError>>) -> FailureCode {
    match end {
        Some(Ok(Finished { outcome: Err(failure), .. })) => failure.code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn each_job_of_a_train_has_its_own_arrays_outcome_and_timings() {
    let executor = start().await;
    // The module is loaded, so that the train is brief.
    succeed(&executor, &add_one(1, 1)).await;
    let mut tasks: Vec<Task<'_>> = (1..=6).map(|number| add_one(10 * number, number)).collect();
    tasks[3].launches[0].args.pop();
    let ends = ride_to(5, &executor, &tasks.iter().map(job).collect::<Vec<_>>()).await;
    assert_eq!(failure(&ends[3]), FailureCode::LaunchError);
    for (number, end) in (1..).zip(&ends).filter(|(number, _)| *number != 4) {
        assert_eq!(first_output(end), vec![number; 10 * number as usize]);
        let Some(Ok(Finished { timings, behind, .. })) = end else { panic!("{end:?}") };
        assert_eq!((timings.launches_us.len(), behind.is_zero()), (1, number == 1), "{timings:?}");
    }
    assert_eq!(u32s(&succeed(&executor, &add_one(3, 1)).await[0]), [1; 3], "and more may follow");
}

#[tokio::test]
async fn a_job_that_takes_long_delays_no_answer_before_it_and_no_job_behind_it() {
    let executor = start().await;
    succeed(&executor, &add_one(1, 1)).await;
    let (before, long, behind) = (add_one(10, 1), misbehaving("spin"), add_one(20, 1));
    let cancel = CancellationToken::new();
    let jobs = [job(&before), ExecutorJob { cancel: &cancel, ..job(&long) }, job(&behind), job(&behind)];
    let mut riders = executor.depart(&jobs).await;
    executor.arrive(&mut riders).await;
    let [before, long, behind, last] = <[_; 4]>::try_from(riders).unwrap();
    assert_eq!(first_output(&executor.finish(before).await), [1; 10]);
    assert!(executor.finish(behind).await.is_none() && executor.finish(last).await.is_none(), "they have not run");
    cancel.cancel();
    assert!(matches!(executor.finish(long).await, Some(Err(RunError::Cancelled))));
}

#[tokio::test]
async fn a_time_limit_is_that_of_the_job_which_runs() {
    let executor = start().await;
    succeed(&executor, &add_one(1, 1)).await;
    let (before, long) = (add_one(10, 1), misbehaving("spin"));
    let limited = ExecutorJob { time_limit: Duration::from_secs(1), ..job(&long) };
    let started = Instant::now();
    let ends = ride_to(1, &executor, &[job(&before), limited, job(&before)]).await;
    assert_eq!(first_output(&ends[0]), [1; 10]);
    assert_eq!(failure(&ends[1]), FailureCode::TimeLimit);
    assert!(ends[2].is_none() && started.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_fault_names_its_job_and_those_behind_it_are_innocent() {
    let executor = start().await;
    succeed(&executor, &add_one(1, 1)).await;
    let (good, bad) = (add_one(10, 1), misbehaving("write_beyond"));
    let ends = ride_to(1, &executor, &[job(&good), job(&bad), job(&good)]).await;
    assert_eq!(first_output(&ends[0]), [1; 10], "it had ended before");
    assert_eq!(failure(&ends[1]), FailureCode::KernelFault);
    match &ends[2] {
        Some(Err(RunError::Lost { cause: LostCause::Neighbour, .. })) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_train_to_a_lost_executor_is_lost() {
    let executor = start().await;
    executor.kill();
    executor.lost().await;
    let task = add_one(10, 1);
    for end in ride(&executor, &[job(&task), job(&task)]).await {
        assert!(matches!(end, Some(Err(RunError::Lost { was_running: false, .. }))), "{end:?}");
    }
}
