//! A worker may die between any two steps of handling a message. The job then runs again on another worker, its producer gets one reply,
//! and the first recorded outcome stands. (faults 1 to 4 and 19)
//!
//! Release builds have no failpoints: see `worker/src/failpoint.rs`.
#![cfg(debug_assertions)]

use std::{env, time::Duration};

use fastrand::Rng;
use gpufleet::Job;
use gpufleet_local::Signal;
use gpufleet_schema::{
    AttemptState, Encoding, FailureCode, JobState, OneOrMany, PoolName, Priority,
    topology::{HEADER_DELIVERIES, TASKS, TYPE_TASK, task_key},
};
use gpufleet_tests::{ConfirmedJob, Ground, Producer, TestWorker, WAIT, busy, kernels, poll_until};
use gpufleet_transport::{Message, Properties};

const DIES: &str = "GPUFLEET_WORKER_DIES";
/// The variable for the seeds to run instead of the suite's: `1-200`, or only `7`.
const SEEDS: &str = "GPUFLEET_DEATH_SEEDS";
const SEEDS_OF_SUITE: u64 = 5;
/// The number of deaths in a row, after which a worker survives. A message that kills fifteen workers is dead-lettered, and each worker
/// receives the messages that the earlier ones left.
const DEATHS_IN_A_ROW: usize = 10;
const PLACES: [&str; 5] = ["before-decode", "before-kernel", "after-kernel", "after-reply", "after-events"];
const POOLS: [&str; 2] = ["default", "second"];

/// The attempts of a job whose first worker died.
struct Survived {
    /// The attempt in the reply.
    replied: u32,
    /// The attempt that decided the job in the ledger.
    decided: u32,
    replies_dropped: u64,
}

/// The death that a seed selects.
struct Death {
    place: &'static str,
    /// The number of visits after which the worker dies at the place. There are more messages than that.
    count: u64,
    alone: Vec<Job>,
    in_lists: Vec<Job>,
}

impl Death {
    fn of_seed(seed: u64) -> Self {
        let mut chance = Rng::with_seed(seed);
        let (place, count) = (chance.choice(PLACES).expect("there are places"), chance.u64(1..=5));
        let (alone, in_lists) = (chance.u64(5..=10), chance.u64(0..=15));
        println!("{SEEDS}={seed}: {place}:{count}, {alone} jobs alone, {in_lists} in lists");
        let mut jobs = |number| (0..number).map(|_| a_job(&mut chance)).collect();
        Self { place, count, alone: jobs(alone), in_lists: jobs(in_lists) }
    }

    /// Starts a worker and submits jobs. The worker dies while it handles them, or while it handles messages that the last worker left.
    async fn strike(self, ground: &Ground, fleet: &Producer) -> Vec<ConfirmedJob> {
        let dies = format!("{}:{}", self.place, self.count);
        let doomed = ground.start_worker_in(&["--pool", POOLS[1]], &[(DIES, &dies)]);
        let mut confirmed = Vec::new();
        for listed in fleet.submit_many(self.in_lists).await {
            confirmed.push(listed.unwrap());
        }
        for job in self.alone {
            confirmed.push(fleet.submit(job).await.unwrap());
        }
        killed(&doomed).await;
        confirmed
    }
}

fn a_job(chance: &mut Rng) -> Job {
    let job = match chance.u64(1..=3) {
        1 => busy::for_millis(chance.u64(1..=50)),
        _ => kernels::doubles(&[1.0]),
    };
    job.pool(chance.choice(POOLS).expect("there are pools").parse().unwrap())
}

fn seeds() -> Vec<u64> {
    let Ok(text) = env::var(SEEDS) else { return (1..=SEEDS_OF_SUITE).collect() };
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    let seed = |text: &str| text.parse::<u64>().expect("a seed is a number, and several are FIRST-LAST");
    (seed(first)..=seed(last)).collect()
}

async fn killed(worker: &TestWorker) {
    assert_eq!(worker.ended().await, None, "a signal ended the worker");
}

/// Runs one job. Its first worker dies at this place, and a second worker starts afterwards.
async fn first_worker_dies(label: &str, place: &str, replies_dropped: u64) -> Survived {
    let ground = Ground::shared(label).await;
    let first = ground.worker_in(&[], &[(DIES, place)]).await;
    let fleet = ground.client().await;
    let mut handle = fleet.submit(kernels::doubles(&[1.0, 2.0])).await.unwrap();
    killed(&first).await;
    let second = ground.worker().await;

    let result = handle.wait(WAIT).await.unwrap();
    assert_eq!(result.output::<f32>("y").unwrap(), [2.0, 4.0]);
    // The broker counts deliveries, so the second worker runs attempt 2 even if the first reported nothing.
    ground
        .poll_attempts("the second attempt", handle.id(), |detail| {
            let second_ran = |row: &gpufleet_ledger::AttemptRow| {
                (row.attempt, row.worker.as_str(), row.state) == (2, second.name(), AttemptState::Succeeded)
            };
            detail.attempts.iter().any(second_ran)
        })
        .await;
    poll_until("all replies have arrived", async || fleet.counts().replies_dropped == replies_dropped).await;
    ground.check_history(1).await;
    let detail = ground.final_job(handle.id()).await;
    assert_eq!(detail.job.state, JobState::Succeeded);
    let counts = fleet.counts();
    assert_eq!(counts.replies, 1, "the producer gets one reply");
    Survived { replied: result.attempt, decided: detail.job.attempt.unwrap(), replies_dropped: counts.replies_dropped }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_worker_dies_before_the_kernel_runs_elsewhere() {
    let survived = first_worker_dies("dies-before-kernel", "before-kernel", 0).await;
    assert_eq!((survived.replied, survived.decided, survived.replies_dropped), (2, 2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_worker_dies_before_the_reply_runs_again() {
    let survived = first_worker_dies("dies-after-kernel", "after-kernel", 0).await;
    assert_eq!((survived.replied, survived.decided, survived.replies_dropped), (2, 2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_reply_is_dropped_when_the_worker_dies_before_its_final_event() {
    let survived = first_worker_dies("dies-after-reply", "after-reply", 1).await;
    assert_eq!((survived.replied, survived.decided, survived.replies_dropped), (1, 2, 1));
}

/// The queue limit passes while the job runs. The producer already has a reply, so the second attempt must not expire
/// the job.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_started_in_time_does_not_expire_when_its_worker_dies() {
    let ground = Ground::shared("dies-in-time").await;
    let first = ground.worker_in(&[], &[(DIES, "after-reply")]).await;
    let fleet = ground.client().await;
    let job = busy::for_seconds(12).queue_limit(Duration::from_secs(10));
    let mut handle = fleet.submit(job).await.unwrap();
    assert_eq!(handle.wait(WAIT).await.unwrap().attempt, 1);
    killed(&first).await;
    let _second = ground.worker().await;
    let detail = ground.final_job(handle.id()).await;
    assert_eq!((detail.job.state, detail.job.attempt), (JobState::Succeeded, Some(2)));
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_outcome_stands_when_the_worker_dies_before_its_acknowledgement() {
    let survived = first_worker_dies("dies-after-events", "after-events", 1).await;
    assert_eq!((survived.replied, survived.decided, survived.replies_dropped), (1, 1, 1));
}

/// A list and single messages are in flight. The broker redelivers all messages that the dead worker held.
#[tokio::test(flavor = "multi_thread")]
async fn all_messages_of_a_worker_survive_its_death_at_any_place() {
    const JOBS_EACH: usize = 12;
    let (ground, fleet) = Ground::with_client("dies-anywhere").await;
    let mut handles = Vec::new();
    for place in ["before-kernel:3", "after-kernel:2", "after-reply:2", "after-events:2"] {
        // The worker may die before it is ready, because it receives the messages of the last worker at once.
        let doomed = ground.start_worker_in(&[], &[(DIES, place)]);
        handles.extend(fleet.submit_many((0..JOBS_EACH).map(|_| kernels::doubles(&[1.0]))).await);
        for _ in 0..JOBS_EACH {
            handles.push(fleet.submit(kernels::doubles(&[1.0])).await);
        }
        killed(&doomed).await;
    }
    let _steady = ground.worker().await;
    for handle in &mut handles {
        handle.as_mut().unwrap().wait(WAIT).await.unwrap();
    }
    ground.check_history(handles.len()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_job_succeeds_once_wherever_a_seed_kills_its_workers() {
    let ground = Ground::shared("dies-by-seed").await;
    ground.declare_pools(&POOLS).await;
    let fleet = ground.client().await;
    let mut jobs = 0;
    for row in seeds().chunks(DEATHS_IN_A_ROW) {
        let mut confirmed = Vec::new();
        for seed in row {
            confirmed.extend(Death::of_seed(*seed).strike(&ground, &fleet).await);
        }
        let steady = ground.worker_with(&["--pool", POOLS[1]]).await;
        for job in &mut confirmed {
            job.wait(WAIT).await.unwrap();
        }
        assert_eq!(steady.stop(Signal::Terminate).await, Some(0));
        jobs += confirmed.len();
    }
    ground.check_history(jobs).await;
}

/// The message claims that it was delivered fourteen times, so that the test need not kill sixteen workers.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_kills_every_worker_is_dead_lettered_and_can_be_replayed() {
    let ground = Ground::shared("poison-message").await;
    let broker = ground.broker().await;
    let task = kernels::doubles(&[1.0]).build().unwrap().task;
    let mut properties = Properties {
        content_type: Some("application/msgpack".to_owned()),
        kind: Some(TYPE_TASK.to_owned()),
        ..Properties::default()
    };
    properties.headers.insert(HEADER_DELIVERIES.to_owned(), 14_i64.into());
    let body = Encoding::MessagePack.encode_tasks(&OneOrMany::One(task.clone())).unwrap();
    let routing_key = task_key(&PoolName::default(), Priority::Normal);
    broker.publish(Message { exchange: TASKS, routing_key, body, properties }).await.unwrap();
    for _ in 0..2 {
        killed(&ground.start_worker_in(&[], &[(DIES, "before-decode")])).await;
    }
    let worker = ground.worker().await;
    let detail = ground.final_job(task.job_id).await;
    assert_eq!(detail.job.state, JobState::Dead);
    assert_eq!(detail.job.failure.as_ref().unwrap().code, FailureCode::AttemptsExhausted.name());
    let folder = tempfile::tempdir().unwrap();
    let id = task.job_id.to_string();
    let list = ground.gpufleet(folder.path(), &["dead", "list"]).await;
    assert!(list.stdout.contains(&id) && list.stdout.contains("without an outcome"), "{}{}", list.stdout, list.stderr);

    let replayed = ground.gpufleet(folder.path(), &["dead", "replay", &id]).await.ok();
    let new = replayed.stdout.trim().rsplit(' ').next().unwrap().parse().unwrap();
    assert_eq!(ground.final_job(new).await.job.state, JobState::Succeeded, "the replayed job runs on a healthy worker");
    assert!(worker.is_alive());
    ground.check_history(2).await;
}

/// The worker must exit. With a poisoned lock it would requeue every message again and again, until each reached its
/// delivery limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_that_panics_ends_its_worker_and_costs_each_message_one_delivery() {
    const JOBS: usize = 12;
    let ground = Ground::shared("dies-scheduling").await;
    // With a fixed prefetch, no change of the prefetch can cost a message a delivery.
    let first = ground.worker_in(&["--prefetch", "4"], &[(DIES, "scheduling:6")]).await;
    let fleet = ground.client().await;
    let mut handles = Vec::new();
    for _ in 0..JOBS {
        handles.push(fleet.submit(kernels::doubles(&[1.0])).await.unwrap());
    }
    killed(&first).await;
    ground.poll_log("the reason", &first, "state that all jobs share").await;
    let _second = ground.worker().await;
    for handle in &mut handles {
        let result = handle.wait(WAIT).await.unwrap();
        assert!(result.attempt <= 2, "a job lost {} deliveries", result.attempt - 1);
    }
    ground.check_history(JOBS).await;
}

/// The panic concerns one message: the worker keeps running, and the broker redelivers the message.
#[tokio::test(flavor = "multi_thread")]
async fn a_panic_over_one_message_costs_it_one_delivery_and_the_worker_lives() {
    let ground = Ground::shared("panics-handling").await;
    let worker = ground.worker_in(&[], &[(DIES, "handling:2")]).await;
    let fleet = ground.client().await;
    let mut attempts = Vec::new();
    for _ in 0..3 {
        let mut handle = fleet.submit(kernels::doubles(&[1.0])).await.unwrap();
        attempts.push(handle.wait(WAIT).await.unwrap().attempt);
    }
    assert_eq!(attempts, [1, 2, 1]);
    assert!(worker.is_alive());
    ground.check_history(attempts.len()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_killed_two_workers_runs_on_the_third() {
    let (ground, fleet) = Ground::with_client("nearly-poison").await;
    let mut handle = fleet.submit(kernels::doubles(&[1.0])).await.unwrap();
    for _ in 0..2 {
        killed(&ground.start_worker_in(&[], &[(DIES, "before-decode")])).await;
    }
    let _worker = ground.worker().await;
    assert_eq!(handle.wait(WAIT).await.unwrap().attempt, 3);
    ground.check_history(1).await;
}
