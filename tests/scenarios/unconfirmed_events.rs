//! Events that the broker does not confirm: jobs run and are answered meanwhile, and the ledger learns everything afterwards.

use std::time::{Duration, Instant};

use gpufleet::Job;
use gpufleet_schema::{
    Dtype,
    bounds::{LABELS_MAX, TEXT_BYTES_MAX},
    topology::LEDGER_QUEUE,
};
use gpufleet_tests::{Ground, METRICS, WAIT, busy, poll_until};

/// Two messages of these fill the 16 MiB that a worker keeps for events without a confirmation: the start of each tells its labels.
const FILLERS: usize = 500;
const FULL_BYTES: f64 = (16 << 20) as f64 * 0.99;
/// Before, each start waited a second for room.
const LATER_JOBS: u32 = 15;
const LATER_WITHIN: Duration = Duration::from_secs(LATER_JOBS as u64 - 5);
const LARGE_BYTES: u64 = 2 << 20;

fn filler() -> Job {
    let text = |index: usize| format!("{index:02}{}", "t".repeat(TEXT_BYTES_MAX - 2));
    (0..LABELS_MAX).fold(busy::for_millis(0), |job, index| job.label(text(index), text(index)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_buffer_of_events_delays_no_reply_and_loses_no_start() {
    let ground = Ground::alone("unconfirmed").await;
    let worker = ground.worker_with(&METRICS).await;
    // What a client tells of its submissions is not confirmed either, so each has a buffer of its own.
    let [one, other, third] = [ground.client().await, ground.client().await, ground.client().await];
    ground.suspend_queue(LEDGER_QUEUE).await;
    for client in [&one, &other] {
        for promise in client.submit_many((0..FILLERS).map(|_| filler())).await {
            busy::assert_done(&promise.unwrap().wait(WAIT).await.unwrap().outputs);
        }
    }
    let full = async || worker.metrics().await.sum("gpufleet_events_unconfirmed_bytes", &[]) >= FULL_BYTES;
    poll_until("the buffer is full", full).await;

    let begun = Instant::now();
    for _ in 0..LATER_JOBS {
        let mut promise = third.submit(busy::for_millis(0)).await.unwrap();
        busy::assert_done(&promise.wait(WAIT).await.unwrap().outputs);
    }
    let took = begun.elapsed();
    println!("{LATER_JOBS} jobs one after the other in {took:?}");
    assert!(took < LATER_WITHIN, "{LATER_JOBS} jobs took {took:?}");

    // Too much for one reply: later portions of a list don't wait for the record of the first.
    let large = || busy::for_millis(0).zeros("large", Dtype::U8, [LARGE_BYTES]).output("large");
    for promise in third.submit_many((0..4).map(|_| large())).await {
        promise.unwrap().wait(WAIT).await.unwrap();
    }
    assert!(full().await, "nothing was confirmed meanwhile");

    ground.resume_queue(LEDGER_QUEUE).await;
    ground.check_history(2 * FILLERS + LATER_JOBS as usize + 4).await;
}
