//! A worker's prefetch follows the length and size of its jobs: few long jobs are prefetched, many short ones, and
//! large messages only up to a number of bytes. (fault 45)

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use gpufleet::Job;
use gpufleet_schema::{Dtype, JobState, PoolName, Priority, Selection, topology::task_queue};
use gpufleet_tests::{ConfirmedJob, Ground, Producer, WAIT, busy, delivered, kernels, poll_until};
use gpufleet_transport::Broker;

/// The maximum number of long jobs that a worker holds: four in slots, and one or two prefetched.
const LONG_JOBS_HELD_MAX: u64 = 6;

async fn submit_all(fleet: &Producer, jobs: impl IntoIterator<Item = Job>) -> Vec<ConfirmedJob> {
    let mut handles = Vec::new();
    for job in jobs {
        handles.push(fleet.submit(job).await.unwrap());
    }
    handles
}

/// Waits for all jobs, and counts them by worker.
async fn shares(handles: &mut [ConfirmedJob]) -> BTreeMap<String, usize> {
    let mut shares = BTreeMap::new();
    for handle in handles {
        let result = handle.wait(WAIT).await.unwrap();
        *shares.entry(result.ran_on.unwrap().worker.to_string()).or_default() += 1;
    }
    shares
}

/// Returns a job that takes some time and nearly fills a message.
fn large() -> Job {
    busy::for_seconds(600).input("x", &vec![0.0_f32; (15 << 20) / 4])
}

async fn cancel(fleet: &Producer, handles: &mut [ConfirmedJob]) {
    let jobs = handles.iter().map(ConfirmedJob::id).collect();
    fleet.cancel(Selection { jobs, ..Selection::default() }, None).await.unwrap();
    for handle in handles {
        handle.wait(WAIT).await.unwrap_err();
    }
}

/// Checks the condition for longer than a worker needs to change its prefetch.
async fn stays(mut holds: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        assert!(holds().await, "the condition must stay true");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Returns how many messages the broker has not delivered yet.
async fn ready(broker: &Broker) -> u64 {
    let queue = task_queue(&PoolName::default(), Priority::Normal);
    broker.queue_depth(&queue).await.unwrap().unwrap().messages.into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_starts_later_gets_its_share_of_long_jobs() {
    let ground = Ground::shared("comes-later").await;
    let (broker, fleet) = (ground.broker().await, ground.client().await);
    let mut handles = submit_all(&fleet, (0..40).map(|_| busy::for_millis(700))).await;
    let first = ground.worker().await;
    handles[0].wait(WAIT).await.unwrap();
    // The first worker's jobs are suspended while the second worker starts, however long that takes.
    first.pause_executors();
    let second = ground.worker().await;
    first.resume_executors();
    // At first most jobs are in the queue, because no worker holds more than a few.
    let shares = shares(&mut handles[1..]).await;
    assert!(shares[second.name()] >= 8, "each worker runs a fifth or more: {shares:?}");
    assert_eq!(ready(&broker).await, 0);
    ground.check_history(40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_worker_leaves_long_jobs_in_the_queue() {
    let ground = Ground::shared("leaves-jobs").await;
    let (broker, fleet) = (ground.broker().await, ground.client().await);
    let _worker = ground.worker().await;
    let mut handles = submit_all(&fleet, (0..40).map(|_| busy::for_seconds(600))).await;
    ground.poll_count("all slots used", JobState::Running, 4).await;
    stays(async || ready(&broker).await >= 40 - LONG_JOBS_HELD_MAX).await;
    cancel(&fleet, &mut handles).await;
    ground.check_history(40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_turn_out_long_are_requeued_and_run_on_other_workers() {
    let ground = Ground::shared("tiny-then-long").await;
    let (broker, fleet) = (ground.broker().await, ground.client().await);
    let first = ground.worker().await;
    let mut tiny = submit_all(&fleet, (0..300).map(|index| kernels::doubles(&[index as f32]))).await;
    for handle in &mut tiny {
        handle.wait(WAIT).await.unwrap();
    }
    let mut long = submit_all(&fleet, (0..40).map(|_| busy::for_seconds(1))).await;
    // The worker has prefetched hundreds of jobs.
    poll_until("waiting jobs are requeued", async || ready(&broker).await > 0).await;
    let _second = ground.worker().await;
    let shares = shares(&mut long).await;
    assert!(shares.len() == 2 && shares.values().all(|share| *share >= 8), "{shares:?}, first {}", first.name());
    ground.check_history(340).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_messages_are_bounded_by_their_bytes() {
    let ground = Ground::shared("prefetch-bytes").await;
    let (broker, fleet) = (ground.broker().await, ground.client().await);
    // The worker subscribes to each of the other five queues with a prefetch of one message, and to this queue with up
    // to three.
    let _worker = ground.worker_with(&["--prefetch-bytes", "128MiB"]).await;
    let mut handles = submit_all(&fleet, (0..8).map(|_| large())).await;
    ground.poll_count("work", JobState::Running, 2).await;
    stays(async || ready(&broker).await >= 5).await;
    cancel(&fleet, &mut handles).await;
    ground.check_history(8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_turn_out_large_are_requeued() {
    let ground = Ground::shared("small-then-large").await;
    let (broker, fleet) = (ground.broker().await, ground.client().await);
    let worker = ground.worker_with(&["--prefetch-bytes", "128MiB"]).await;
    for handle in &mut submit_all(&fleet, (0..300).map(|index| kernels::doubles(&[index as f32]))).await {
        handle.wait(WAIT).await.unwrap();
    }
    let mut handles = submit_all(&fleet, (0..12).map(|_| large())).await;
    ground.poll_count("work", JobState::Running, 1).await;
    poll_until("waiting messages are requeued", async || ready(&broker).await >= 7).await;
    stays(async || ready(&broker).await >= 7).await;
    assert!(worker.is_alive());
    cancel(&fleet, &mut handles).await;
    ground.check_history(312).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn later_jobs_pass_jobs_that_wait_for_memory() {
    let (ground, fleet) = Ground::with_client("stuck-jobs").await;
    let environment = [("GPUFLEET_EMULATOR_MEMORY", "64MiB")];
    let _worker = ground.worker_in(&[], &environment).await;
    let holds = |job: Job, mib: u64| job.zeros("room", Dtype::U8, [mib << 20]);
    // One job holds most of the memory, and more jobs wait for it than a worker prefetches at first.
    let mut holder = fleet.submit(holds(kernels::endless(), 40)).await.unwrap();
    ground.poll_job("running", holder.id(), |job| job.state == JobState::Running).await;
    let mut large = submit_all(&fleet, (0..12).map(|_| holds(busy::for_millis(1), 40))).await;
    let mut small = fleet.submit(busy::for_millis(1)).await.unwrap();
    small.wait(WAIT).await.unwrap();
    cancel(&fleet, std::slice::from_mut(&mut holder)).await;
    for handle in &mut large {
        handle.wait(WAIT).await.unwrap();
    }
    ground.check_history(14).await;
}

/// A worker must not take its own cancelled consumers for other workers.
#[tokio::test(flavor = "multi_thread")]
async fn the_consumers_of_a_subscription_are_those_that_the_broker_counts() {
    let ground = Ground::shared("consumers").await;
    let (broker, fleet) = (ground.broker().await, ground.client().await);
    let queue = task_queue(&PoolName::default(), Priority::Normal);
    let mut consumer = broker.consume(queue.clone(), 1);
    submit_all(&fleet, [busy::for_millis(0), busy::for_millis(0)]).await;
    let counted = async || broker.queue_depth(&queue).await.unwrap().unwrap().consumers;

    let first = delivered(&mut consumer).await;
    assert_eq!((first.acker.consumers(), counted().await), (1, 1));
    consumer.set_prefetch(2).await;
    assert_eq!((first.acker.consumers(), counted().await), (2, 2));
    let second = delivered(&mut consumer).await;
    consumer.set_prefetch(3).await;
    assert_eq!((first.acker.consumers(), counted().await), (3, 3));
    second.ack().await.unwrap();
    poll_until("the second consumer is gone", async || counted().await == 2).await;
    assert_eq!(first.acker.consumers(), 2);
    first.requeue().await.unwrap();
    let again = delivered(&mut consumer).await;
    poll_until("the first consumer is gone", async || counted().await == 1).await;
    assert_eq!(again.acker.consumers(), 1);
}
