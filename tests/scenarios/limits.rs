//! Limits are enforced: an endless kernel ends at its time limit, a job that waited too long does not start, and a job
//! that can never fit fails with the numbers. A wrong clock makes no duration negative. (faults 33, 37 and 39)

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gpufleet::Job;
use gpufleet_schema::{AttemptState, FailureCode, JobState, Selection, Verdict};
use gpufleet_tests::{Ground, WAIT, busy, kernels};

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_kernel_ends_at_its_limit_and_its_neighbours_lose_no_attempt() {
    let (ground, worker, fleet) = Ground::served("endless").await;
    let mut endless = fleet.submit(kernels::endless().time_limit(Duration::from_secs(1))).await.unwrap();
    let mut neighbour = fleet.submit(busy::for_seconds(3)).await.unwrap();

    let error = endless.wait(WAIT).await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!((failure.verdict, failure.code), (Verdict::Timeout, FailureCode::TimeLimit));
    busy::assert_done(&neighbour.wait(WAIT).await.unwrap().outputs);
    assert!(worker.is_alive());
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waited_too_long_expires_and_does_not_run() {
    let (ground, fleet) = Ground::with_client("expired").await;
    let mut handle = fleet.submit(kernels::doubles(&[1.0]).queue_limit(Duration::from_millis(1))).await.unwrap();
    // The worker starts later than the limit allows, because its start takes far more than a millisecond.
    let _worker = ground.worker().await;
    let gpufleet::JobError::Failed(failed) = handle.wait(WAIT).await.unwrap_err() else { panic!("no outcome") };
    assert_eq!(failed.state, AttemptState::Expired);
    assert_eq!(failed.failure.unwrap().code, FailureCode::QueueLimit);
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_expires_while_it_waits_behind_another() {
    let ground = Ground::shared("expired-waiting").await;
    let _worker = ground.worker_with(&["--jobs-per-device", "1"]).await;
    let fleet = ground.client().await;
    let mut long = fleet.submit(kernels::endless()).await.unwrap();
    ground.poll_job("running", long.id(), |job| job.state == JobState::Running).await;
    let mut waiting = fleet.submit(kernels::doubles(&[1.0]).queue_limit(Duration::from_millis(500))).await.unwrap();
    let gpufleet::JobError::Failed(failed) = waiting.wait(WAIT).await.unwrap_err() else { panic!("no outcome") };
    assert_eq!(failed.state, AttemptState::Expired, "the reply arrives while the other job still runs");
    let all = Selection { jobs: vec![long.id()], ..Selection::default() };
    fleet.cancel(all, None).await.unwrap();
    long.wait(WAIT).await.unwrap_err();
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_sets_the_default_and_the_maximum_of_its_time_limits() {
    let ground = Ground::shared("time-allowed").await;
    let _worker = ground.worker_with(&["--pool", "brisk:time-default=1s,time-max=1m"]).await;
    let fleet = ground.client().await;
    let mut silent = fleet.submit(kernels::endless().pool("brisk".parse().unwrap())).await.unwrap();
    let greedy = kernels::doubles(&[1.0]).pool("brisk".parse().unwrap()).time_limit(Duration::from_secs(61));
    let mut greedy = fleet.submit(greedy).await.unwrap();
    let failure = silent.wait(WAIT).await.unwrap_err().failure().unwrap().clone();
    assert_eq!(failure.code, FailureCode::TimeLimit, "a job without a limit gets the pool's default");
    let failure = greedy.wait(WAIT).await.unwrap_err().failure().unwrap().clone();
    assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::Policy));
    assert!(failure.message.contains("1m 1s, but its pool allows at most 1m"), "{}", failure.message);
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_can_never_fit_fails_at_once_with_the_numbers() {
    let (ground, _worker, fleet) = Ground::served("too-large").await;
    let error = fleet.submit(kernels::with_buffer_of(1 << 39)).await.unwrap().wait(WAIT).await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!((failure.verdict, failure.code), (Verdict::OutOfMemory, FailureCode::OutOfMemory));
    assert!(failure.message.contains(&(1_u64 << 39).to_string()), "{}", failure.message);
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_beyond_its_own_memory_limit_fails_at_once_and_is_not_retried() {
    let (ground, _worker) = Ground::with_worker("own-limit").await;
    let mut task = kernels::doubles(&[1.0]).build().unwrap().task;
    task.limits.memory_bytes_max = Some(3);
    let mut handle = ground.client().await.submit(Job::from_task(task)).await.unwrap();
    let error = handle.wait(WAIT).await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!((failure.verdict, failure.code), (Verdict::OutOfMemory, FailureCode::OutOfMemory));
    assert!(failure.message.contains("limits.memory_bytes_max is 3"), "{}", failure.message);
    let attempts = ground.final_job(handle.id()).await.attempts;
    let [attempt] = attempts.as_slice() else { panic!("{attempts:?}") };
    assert_eq!(attempt.state, AttemptState::Failed);
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_whose_clock_is_an_hour_ahead_is_served_and_no_time_is_negative() {
    let (ground, _worker) = Ground::with_worker("clock-ahead").await;
    let mut task = kernels::doubles(&[1.0]).queue_limit(Duration::from_secs(600)).build().unwrap().task;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(3600);
    task.submitted_ms = Some(now.as_millis() as i64);
    ground.publish_task(&task).await;
    ground.poll_job("recorded", task.job_id, |_| true).await;
    let detail = ground.final_job(task.job_id).await;
    assert_eq!((detail.job.state, detail.job.queue_us), (JobState::Succeeded, Some(0)));
    // The history checker is not used, because by the producer's clock the job ran before it was submitted.
    let [attempt] = detail.attempts.as_slice() else { panic!("{:?}", detail.attempts) };
    assert!(attempt.started_at <= attempt.finished_at);
}

const FAULTS: &str = "GPUFLEET_EMULATOR_FAULTS";

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_found_memory_short_succeeds_after_the_caches_are_freed() {
    let ground = Ground::shared("short-once").await;
    let worker = ground.worker_in(&[], &[(FAULTS, "alloc:1=out-of-memory")]).await;
    let fleet = ground.client().await;
    let result = fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    assert_eq!(result.attempt, 1, "no retry was needed");
    assert!(worker.is_alive());
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_fails_with_the_numbers_if_memory_stays_short_and_the_worker_lives() {
    let ground = Ground::shared("short-for-ever").await;
    let worker = ground.worker_in(&[], &[(FAULTS, "alloc:1+=out-of-memory")]).await;
    let executors = worker.executors();
    let fleet = ground.client().await;
    let mut handle = fleet.submit(kernels::doubles(&[1.0])).await.unwrap();
    let error = handle.wait(WAIT).await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!((failure.verdict, failure.code), (Verdict::OutOfMemory, FailureCode::OutOfMemory), "{failure:?}");
    assert!(failure.message.contains("bytes") && failure.message.contains("free"), "{}", failure.message);
    let states: Vec<_> = ground.final_job(handle.id()).await.attempts.iter().map(|row| row.state).collect();
    assert_eq!(
        states,
        [AttemptState::Lost, AttemptState::Failed],
        "the worker retries once, with the device to itself"
    );
    worker.assert_keeps(&executors);
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_that_hangs_in_the_driver_ends_at_its_limit_too() {
    let ground = Ground::shared("hang").await;
    let worker = ground.worker_in(&[], &[(FAULTS, "launch:2=hang")]).await;
    let fleet = ground.client().await;
    fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    let stuck = kernels::doubles(&[1.0]).time_limit(Duration::from_secs(1));
    let error = fleet.submit(stuck).await.unwrap().wait(WAIT).await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!((failure.verdict, failure.code), (Verdict::Timeout, FailureCode::TimeLimit), "{failure:?}");
    fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    assert!(worker.is_alive());
    ground.check_history(3).await;
}
