//! A long job whose channel is lost more often than RabbitMQ delivers a message: the worker that runs it renews its redeliveries, so it
//! is not dead-lettered, and another worker runs it if this one goes. (fault 18)

use std::time::Duration;

use gpufleet::{Fleet, JobHandle};
use gpufleet_local::Signal;
use gpufleet_schema::{
    JobState, PoolName, Priority,
    topology::{DEAD_QUEUE, task_queue},
};
use gpufleet_tests::{Ground, METRICS, Proxy, TestWorker, WAIT, busy, poll_until};

/// More than RabbitMQ's limit for a message.
const CUTS: u32 = 24;

/// The worker drops the redelivery that came over a lost channel when the next one arrives.
const DROPPED: &str = "gpufleet_stale_settlements_total";

/// A job that runs until it is released, on a worker whose connections have broken so often.
async fn cut_off_again_and_again(ground: &Ground, proxy: &Proxy, fleet: &Fleet, cuts: u32) -> (TestWorker, JobHandle) {
    let worker = ground.worker_with(&[&["--amqp-url", proxy.url(), "--grace", "1s"], &METRICS[..]].concat()).await;
    let handle = fleet.submit(busy::until_released()).await.unwrap();
    ground.poll_started(handle.id()).await;
    for cut in 0..cuts {
        proxy.cut();
        poll_until("the job is delivered again", async || {
            let metrics = worker.metrics().await;
            let held = metrics.sum("gpufleet_messages_held", &[]);
            held >= 2.0 && metrics.sum(DROPPED, &[]) >= f64::from(cut)
        })
        .await;
    }
    ground.poll_log("the renewal", &worker, "republished with a fresh count").await;
    assert_eq!(worker.metrics().await.sum("gpufleet_attempts_total", &[]), 0.0, "the job still runs");
    (worker, handle)
}

/// The job has run on a second worker, and nothing else is left of it.
async fn check_end_on(ground: &Ground, worker: &TestWorker, mut handle: JobHandle) {
    ground.release_jobs();
    let result = handle.wait(WAIT).await.unwrap();
    assert_eq!(result.ran_on.unwrap().worker.as_str(), worker.name());
    check_nothing_left(ground).await;
    assert_eq!(ground.final_job(handle.id()).await.job.state, JobState::Succeeded);
    ground.check_history(1).await;
}

async fn check_nothing_left(ground: &Ground) {
    let queue = task_queue(&PoolName::default(), Priority::Normal);
    poll_until("the queue is empty", async || ground.messages_in(&queue).await == 0).await;
    assert_eq!(ground.messages_in(DEAD_QUEUE).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_channel_is_lost_forty_times_runs_once() {
    let ground = Ground::shared("forty-cuts").await;
    let (proxy, fleet) = (ground.proxy().await, ground.client().await);
    let (worker, mut handle) = cut_off_again_and_again(&ground, &proxy, &fleet, 40).await;
    ground.release_jobs();
    assert_eq!(handle.wait(WAIT).await.unwrap().attempt, 1);
    check_nothing_left(&ground).await;
    assert_eq!(ground.final_job(handle.id()).await.attempts.len(), 1);
    assert_eq!(worker.stop(Signal::Terminate).await, Some(0));
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_worker_runs_the_job_of_a_worker_that_dies_after_many_lost_channels() {
    let ground = Ground::shared("cuts-killed").await;
    let (proxy, fleet) = (ground.proxy().await, ground.client().await);
    let (first, handle) = cut_off_again_and_again(&ground, &proxy, &fleet, CUTS).await;
    assert_eq!(first.stop(Signal::Kill).await, None);
    let second = ground.worker().await;
    check_end_on(&ground, &second, handle).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_after_many_lost_channels_leaves_its_job_once() {
    let ground = Ground::shared("cuts-stopped").await;
    let (proxy, fleet) = (ground.proxy().await, ground.client().await);
    let (first, handle) = cut_off_again_and_again(&ground, &proxy, &fleet, CUTS).await;
    assert_eq!(first.stop(Signal::Terminate).await, Some(0));
    ground.poll_log("the end of the grace period", &first, "grace period is over").await;
    let queue = task_queue(&PoolName::default(), Priority::Normal);
    assert_eq!(ground.messages_in(&queue).await, 1);
    let second = ground.worker().await;
    check_end_on(&ground, &second, handle).await;
}

/// More acknowledgement timeouts than RabbitMQ delivers a message.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_many_acknowledgement_timeouts_runs_once() {
    let ground = Ground::breakable("many-timeouts").await;
    ground.consumer_timeout(Duration::from_secs(1), Duration::from_millis(100)).await;
    let worker = ground.worker_with(&METRICS).await;
    let fleet = ground.client().await;
    let mut handle = fleet.submit(busy::until_released()).await.unwrap();
    // Each subscription waits longer than the one before.
    for dropped in [f64::from(CUTS / 2), f64::from(CUTS)] {
        poll_until("timeouts", async || worker.metrics().await.sum(DROPPED, &[]) >= dropped).await;
    }
    ground.release_jobs();
    assert_eq!(handle.wait(WAIT).await.unwrap().attempt, 1);
    check_nothing_left(&ground).await;
    assert_eq!(ground.final_job(handle.id()).await.attempts.len(), 1);
    ground.check_history(1).await;
}
