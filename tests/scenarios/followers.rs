//! The other jobs of a client continue if a program's follower is faulty, or if the ledger takes no events.

use std::{sync::Arc, time::Duration};

use gpufleet::{Ended, Follower, Job, SubmitError};
use gpufleet_schema::topology::LEDGER_QUEUE;
use gpufleet_tests::{Ground, WAIT, kernels};
use tokio::time::timeout;

/// A follower that panics at every call.
#[derive(Debug)]
struct Faulty;

impl Follower for Faulty {
    fn confirmed(&self, tokens: Vec<u64>) {
        panic!("told that {tokens:?} are confirmed");
    }

    fn refused(&self, token: u64, error: SubmitError) {
        panic!("told that {token} is refused: {error}");
    }

    fn ended(&self, jobs: Vec<(u64, Ended)>) {
        panic!("told that {} jobs have ended", jobs.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_panics_stops_no_other_job_of_its_client() {
    const ROUNDS: u64 = 3;
    const JOBS: u64 = 20;
    let (_ground, _worker, client) = Ground::served("faulty-follower").await;
    for round in 0..ROUNDS {
        let mut handles = Vec::new();
        for job in 0..JOBS {
            let followed = kernels::doubles(&[1.0]).build().unwrap();
            client.submit_followed(followed, round * JOBS + job, Arc::new(Faulty)).await;
            let handle = timeout(WAIT, client.submit(kernels::doubles(&[job as f32]))).await;
            handles.push(handle.expect("the client still submits").unwrap());
        }
        for (job, mut handle) in handles.into_iter().enumerate() {
            assert_eq!(handle.wait(WAIT).await.unwrap().output::<f32>("y").unwrap(), [2.0 * job as f32]);
        }
    }
}

/// The queue neither accepts nor refuses events, as if most of its nodes were down.
#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_that_takes_no_events_stops_no_producer() {
    /// The number of batches. They have more unanswered jobs than the client's memory for submissions (4,096) and its event buffer (16,384)
    /// hold together.
    const BATCHES: usize = 24;
    const BATCH: usize = 1_000;
    /// The deadline of a batch. A batch takes some hundred milliseconds on a busy machine, and one of them waits a second for room.
    const BATCH_WITHIN: Duration = Duration::from_secs(20);
    let (ground, client) = Ground::with_client("no-events").await;
    ground.suspend_queue(LEDGER_QUEUE).await;
    // The handles keep the jobs unanswered.
    let mut handles = Vec::new();
    for batch in 0..BATCHES {
        let jobs =
            (0..BATCH).map(|_| Job::ptx(".version 8.0\n.target sm_80\n.address_size 64\n").entry("k").cover([1]));
        let sent = timeout(BATCH_WITHIN, client.submit_many(jobs)).await;
        let sent = sent.unwrap_or_else(|_| panic!("batch {batch} waits for the ledger's queue"));
        handles.extend(sent.into_iter().map(|handle| handle.unwrap()));
    }
    assert_eq!(handles.len(), BATCHES * BATCH);
    ground.resume_queue(LEDGER_QUEUE).await;
}
