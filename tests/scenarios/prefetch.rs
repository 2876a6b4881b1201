//! A worker's prefetch follows the length and size of its jobs: no worker hoards long ones, tiny ones flow, and large ones
//! stay within their bytes. (fault 45)

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use gpufleet::Job;
use gpufleet_schema::{Dtype, JobState, PoolName, Priority, Selection, topology::task_queue};
use gpufleet_tests::{Ground, Producer, Promise, WAIT, busy, kernels, poll_until};
use gpufleet_transport::Broker;

/// Four places, and one or two jobs more.
const LONG_IN_HAND_MAX: u64 = 6;

async fn submit_all(fleet: &Producer, jobs: impl IntoIterator<Item = Job>) -> Vec<Promise> {
    let mut handles = Vec::new();
    for job in jobs {
        handles.push(fleet.submit(job).await.unwrap());
    }
    handles
}

/// Waits for all and counts them by worker.
async fn shares(handles: &mut [Promise]) -> BTreeMap<String, usize> {
    let mut shares = BTreeMap::new();
    for handle in handles {
        let result = handle.wait(WAIT).await.unwrap();
        *shares.entry(result.ran_on.unwrap().worker.to_string()).or_default() += 1;
    }
    shares
}

/// A job that needs nearly all that a message can carry, and time.
fn large() -> Job {
    busy::for_seconds(600).input("x", &vec![0.0_f32; (15 << 20) / 4])
}

async fn cancel(fleet: &Producer, handles: &mut [Promise]) {
    let jobs = handles.iter().map(Promise::id).collect();
    fleet.cancel(Selection { jobs, ..Selection::default() }, None).await.unwrap();
    for handle in handles {
        handle.wait(WAIT).await.unwrap_err();
    }
}

/// Looks for longer than a worker takes to change its mind.
async fn stays(mut holds: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        assert!(holds().await, "it did not stay");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Messages that the broker has not delivered yet.
async fn ready(broker: &Broker) -> u64 {
    let queue = task_queue(&PoolName::default(), Priority::Normal);
    broker.queue_depth(&queue).await.unwrap().unwrap().messages.into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_comes_later_gets_its_share_of_long_jobs() {
    let ground = Ground::shared("comes-later").await;
    let (broker, fleet) = (ground.broker().await, ground.client().await);
    let mut handles = submit_all(&fleet, (0..40).map(|_| busy::for_millis(700))).await;
    let _first = ground.worker().await;
    handles[0].wait(WAIT).await.unwrap();
    let second = ground.worker().await;
    // Early checks see most of them still in the queue; no worker ever holds more than a few.
    let shares = shares(&mut handles[1..]).await;
    assert!(shares[second.name()] >= 8, "a fifth at least: {shares:?}");
    assert_eq!(ready(&broker).await, 0);
    ground.check_history(40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_worker_leaves_long_jobs_in_the_queue() {
    let ground = Ground::shared("leaves-jobs").await;
    let (broker, fleet) = (ground.broker().await, ground.client().await);
    let _worker = ground.worker().await;
    let mut handles = submit_all(&fleet, (0..40).map(|_| busy::for_seconds(600))).await;
    ground.poll_count("all places taken", JobState::Running, 4).await;
    stays(async || ready(&broker).await >= 40 - LONG_IN_HAND_MAX).await;
    cancel(&fleet, &mut handles).await;
    ground.check_history(40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_jobs_that_came_as_tiny_ones_go_back_and_are_run_by_others() {
    let ground = Ground::shared("tiny-then-long").await;
    let (broker, fleet) = (ground.broker().await, ground.client().await);
    let first = ground.worker().await;
    let second = ground.start_worker(&[]);
    let mut tiny = submit_all(&fleet, (0..300).map(|index| kernels::doubles(&[index as f32]))).await;
    for handle in &mut tiny {
        handle.wait(WAIT).await.unwrap();
    }
    let mut long = submit_all(&fleet, (0..40).map(|_| busy::for_seconds(1))).await;
    // The workers had asked for hundreds.
    poll_until("what waits goes back", async || ready(&broker).await > 0).await;
    second.wait_ready().await.unwrap();
    let shares = shares(&mut long).await;
    assert!(shares.len() == 2 && shares.values().all(|share| *share >= 8), "{shares:?}, first {}", first.name());
    ground.check_history(340).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_messages_are_bounded_by_their_bytes() {
    let ground = Ground::shared("prefetch-bytes").await;
    let (broker, fleet) = (ground.broker().await, ground.client().await);
    // One message of the other five queues each, and up to three of this one.
    let _worker = ground.worker_with(&["--prefetch-bytes", "128MiB"]).await;
    let mut handles = submit_all(&fleet, (0..8).map(|_| large())).await;
    ground.poll_count("work", JobState::Running, 2).await;
    stays(async || ready(&broker).await >= 5).await;
    cancel(&fleet, &mut handles).await;
    ground.check_history(8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_messages_that_came_as_small_ones_go_back() {
    let ground = Ground::shared("small-then-large").await;
    let (broker, fleet) = (ground.broker().await, ground.client().await);
    let worker = ground.worker_with(&["--prefetch-bytes", "128MiB"]).await;
    for handle in &mut submit_all(&fleet, (0..300).map(|index| kernels::doubles(&[index as f32]))).await {
        handle.wait(WAIT).await.unwrap();
    }
    let mut handles = submit_all(&fleet, (0..12).map(|_| large())).await;
    ground.poll_count("work", JobState::Running, 1).await;
    poll_until("what waits goes back", async || ready(&broker).await >= 7).await;
    stays(async || ready(&broker).await >= 7).await;
    assert!(worker.is_alive());
    cancel(&fleet, &mut handles).await;
    ground.check_history(312).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_without_memory_let_those_behind_them_pass() {
    let ground = Ground::shared("stuck-jobs").await;
    let fleet = ground.client().await;
    let environment = [("GPUFLEET_EMULATOR_MEMORY", "64MiB")];
    let _worker = ground.worker_in(&[], &environment).await;
    let holds = |job: Job, mib: u64| job.zeros("room", Dtype::U8, [mib << 20]);
    // One holds most of the memory, and more wait for it than a worker asks for at first.
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
