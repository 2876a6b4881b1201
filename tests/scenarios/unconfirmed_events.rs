//! The broker refuses events for a while. Jobs run and are answered in the meantime, and afterwards the ledger gets every event.

use std::time::{Duration, Instant};

use gpufleet_schema::{Dtype, Event, JobId, OneOrMany, topology::LEDGER_QUEUE};
use gpufleet_tests::{
    Ground, METRICS, WAIT, busy,
    kernels::{self, Then},
    poll_until,
};

/// The number of jobs whose final events fill the worker's buffer of 16 MiB with their kernels' output. They share one message: a worker
/// acknowledges no message before its events are confirmed, so its prefetch would stop many small messages early.
const FILLERS: u32 = 270;
/// The number of lines that a job prints. They have at least 64 KiB, which is as much as a reply and an event keep.
const FILLER_LINES: u32 = 4_000;
const FULL_BYTES: f64 = (16 << 20) as f64;
/// The number of jobs that run while the buffer is full. If start events waited for room, each job would exceed `LATER_WITHIN`.
const LATER_JOBS: u32 = 15;
/// The duration of these jobs: longer than a job may run without a start event.
const LATER_MS: u64 = 200;
const LATER_WITHIN: Duration = Duration::from_millis(LATER_MS + 450);
const LARGE_BYTES: u64 = 2 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_full_buffer_of_events_delays_no_reply_and_loses_no_start() {
    let ground = Ground::with_recorder_process("unconfirmed").await;
    ground.fleet().stop_ledger().await.unwrap();
    ground.set_policy(LEDGER_QUEUE, "{<<\"max-length\">>, 1}").await;
    let (jobs, later) = jobs_while_no_event_is_confirmed(&ground).await;
    // A quorum queue unblocks its publishers when a message leaves it, but only while it has a bound.
    ground.set_policy(LEDGER_QUEUE, "{<<\"max-length\">>, 1000}").await;
    ground.fleet().start_ledger().await.unwrap();
    let history = ground.history(jobs).await;
    history.assert_holds();
    let told = |event: &Event| matches!(event, Event::Started(start) if later.contains(&start.job.job_id));
    assert!(
        !history.events.iter().any(told),
        "the buffer had no room for start events, so the final events report the starts"
    );
}

/// The queue neither accepts nor refuses events, as if most of its nodes were down. RabbitMQ would stop reading from a connection that has
/// many messages for such a queue, so the worker has few.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_ledger_queue_delays_no_reply_and_loses_no_start() {
    let ground = Ground::shared("frozen-ledger").await;
    ground.suspend_queue(LEDGER_QUEUE).await;
    let (jobs, _) = jobs_while_no_event_is_confirmed(&ground).await;
    ground.resume_queue(LEDGER_QUEUE).await;
    ground.check_history(jobs).await;
}

/// Fills a worker's event buffer, then runs jobs one after the other and a list of large jobs. Returns the number of all jobs, and the ids
/// of the jobs that ran one after the other.
async fn jobs_while_no_event_is_confirmed(ground: &Ground) -> (usize, Vec<JobId>) {
    let worker = ground.worker_with(&METRICS).await;
    let client = ground.client().await;
    let fillers = (0..FILLERS).map(|mark| kernels::says(mark, FILLER_LINES, Then::Return).build().unwrap().task);
    ground.publish_tasks(&OneOrMany::Many(fillers.collect())).await;
    let full = async || worker.metrics().await.sum("gpufleet_events_unconfirmed_bytes", &[]) >= FULL_BYTES;
    poll_until("the buffer is full", full).await;

    let (mut later, mut times) = (Vec::new(), Vec::new());
    for _ in 0..LATER_JOBS {
        let begun = Instant::now();
        let mut promise = client.submit(busy::for_millis(LATER_MS)).await.unwrap();
        busy::assert_done(&promise.wait(WAIT).await.unwrap().outputs);
        later.push(promise.id());
        times.push(begun.elapsed());
    }
    // A busy machine delays some of them, but not most.
    times.sort();
    assert!(times[times.len() / 2] < LATER_WITHIN, "the jobs took {times:?}");

    // Their outputs need several replies. Later parts of the list must not wait until the first part is recorded.
    let large = || busy::for_millis(0).zeros("large", Dtype::U8, [LARGE_BYTES]).output("large");
    for promise in client.submit_many((0..4).map(|_| large())).await {
        promise.unwrap().wait(WAIT).await.unwrap();
    }
    assert!(full().await, "no event was confirmed meanwhile");
    ((FILLERS + LATER_JOBS) as usize + 4, later)
}
