//! The channel of a long job is lost more often than RabbitMQ delivers a message. The worker that runs the job renews its redeliveries, so
//! it is not dead-lettered, and another worker runs it if this one is lost. (fault 18)

use std::time::Duration;

use gpufleet::{Fleet, JobHandle};
use gpufleet_local::Signal;
use gpufleet_schema::{
    Encoding, JobState, OneOrMany, PoolName, Priority,
    bounds::DELIVERIES_MAX,
    topology::{DEAD_QUEUE, task_queue},
};
use gpufleet_tests::{Ground, METRICS, Proxy, TestWorker, WAIT, busy, poll_until};

use crate::confined::{python, user_of};

const WAITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/foreign/waits.py");

/// The number of lost channels: more than RabbitMQ's limit for deliveries of a message.
const CUTS: u64 = 24;

/// The number of lost channels after which the worker renews the redelivery.
const RENEWED_AT: u64 = DELIVERIES_MAX / 2;

/// The metric of dropped deliveries. When the next redelivery arrives, the worker drops the one that came over a lost channel.
const DROPPED: &str = "gpufleet_stale_settlements_total";

/// Starts a job that runs until it is released, on a worker whose connections have been broken this often.
async fn cut_off_again_and_again(ground: &Ground, proxy: &Proxy, fleet: &Fleet, cuts: u64) -> (TestWorker, JobHandle) {
    let worker = ground.worker_with(&[&["--amqp-url", proxy.url(), "--grace", "1s"], &METRICS[..]].concat()).await;
    let handle = fleet.submit(busy::until_released()).await.unwrap();
    ground.poll_started(handle.id()).await;
    cut_again_and_again(ground, proxy, &worker, cuts).await;
    (worker, handle)
}

async fn cut_again_and_again(ground: &Ground, proxy: &Proxy, worker: &TestWorker, cuts: u64) {
    for cut in 1..=cuts {
        proxy.cut();
        // No copy is on its way when the next cut comes. Every other delivery over a lost channel has been dropped.
        poll_until("the job is delivered again, and renewed if that is due", async || {
            let metrics = worker.metrics().await;
            (metrics.sum("gpufleet_messages_held", &[]), metrics.sum(DROPPED, &[])) == (2.0, (cut - 1) as f64)
                && worker.count_in_log("republished with a fresh count") as u64 == cut / RENEWED_AT
                && ground.messages_in(&normal_queue()).await == 1
        })
        .await;
    }
    assert_eq!(worker.metrics().await.sum("gpufleet_attempts_total", &[]), 0.0, "the job still runs");
}

fn normal_queue() -> String {
    task_queue(&PoolName::default(), Priority::Normal)
}

/// Checks that the job has run on a second worker, and that nothing else of it is left.
async fn check_end_on(ground: &Ground, worker: &TestWorker, mut handle: JobHandle) {
    ground.release_jobs();
    let result = handle.wait(WAIT).await.unwrap();
    assert_eq!(result.ran_on.unwrap().worker.as_str(), worker.name());
    check_nothing_left(ground).await;
    assert_eq!(ground.final_job(handle.id()).await.job.state, JobState::Succeeded);
    ground.check_history(1).await;
}

async fn check_nothing_left(ground: &Ground) {
    poll_until("the queue is empty", async || ground.messages_in(&normal_queue()).await == 0).await;
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
    assert_eq!(ground.messages_in(&normal_queue()).await, 1);
    let second = ground.worker().await;
    check_end_on(&ground, &second, handle).await;
}

/// The producer uses pika, as a user who has only the printed permissions.
#[tokio::test(flavor = "multi_thread")]
async fn a_pika_producer_gets_the_reply_of_a_job_whose_channel_was_lost_again_and_again() {
    let ground = Ground::shared("cuts-pika").await;
    let proxy = ground.proxy().await;
    let worker = ground.worker_with(&[&["--amqp-url", proxy.url()], &METRICS[..]].concat()).await;
    let anna = user_of(&ground, "anna", &["--role", "producer", "--pool", "default"]).await;
    let task = busy::until_released().build().unwrap().task;
    let (id, file) = (task.job_id, tempfile::NamedTempFile::new().unwrap());
    std::fs::write(file.path(), Encoding::Json.encode_tasks(&OneOrMany::One(task)).unwrap()).unwrap();
    let file = file.path().to_str().unwrap();
    let arguments = [WAITS, file];
    let producer = python(&anna, 4 * WAIT, &arguments);
    let cuts = async {
        ground.poll_started(id).await;
        cut_again_and_again(&ground, &proxy, &worker, DELIVERIES_MAX + 1).await;
        ground.release_jobs();
    };
    let (said, ()) = tokio::join!(producer, cuts);
    assert_eq!(said, format!("{id} succeeded 1\n"));
    check_nothing_left(&ground).await;
    assert_eq!(ground.final_job(id).await.attempts.len(), 1);
}

/// There are more acknowledgement timeouts than RabbitMQ's limit for deliveries of a message.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_many_acknowledgement_timeouts_runs_once() {
    let ground = Ground::breakable("many-timeouts").await;
    ground.consumer_timeout(Duration::from_secs(1), Duration::from_millis(100)).await;
    let worker = ground.worker_with(&METRICS).await;
    let fleet = ground.client().await;
    let mut handle = fleet.submit(busy::until_released()).await.unwrap();
    // Each subscription waits longer than the previous one.
    for dropped in [(CUTS / 2) as f64, CUTS as f64] {
        poll_until("timeouts", async || worker.metrics().await.sum(DROPPED, &[]) >= dropped).await;
    }
    ground.release_jobs();
    assert_eq!(handle.wait(WAIT).await.unwrap().attempt, 1);
    check_nothing_left(&ground).await;
    assert_eq!(ground.final_job(handle.id()).await.attempts.len(), 1);
    ground.check_history(1).await;
}
