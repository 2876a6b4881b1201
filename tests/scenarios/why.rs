//! `gpufleet why` on a real fleet: one scenario for each reason that it can give.

use std::path::Path;

use gpufleet::Job;
use gpufleet_schema::{
    AttemptFinished, AttemptState, Dtype, Event, Failure, FailureCode, JobId, JobInfo, JobState, Selection, Submitted,
    Verdict,
    encoding::encode_events,
    topology::{EVENTS_KEY, EVENTS_WORKER, TYPE_EVENTS},
};
use gpufleet_tests::{ConfirmedJob, Ground, WAIT, busy, kernels, poll_until};
use gpufleet_transport::{Message, Properties};
use serde_json::Value;

/// Returns the reasons in order, each with its text.
async fn why(ground: &Ground, folder: &Path, job_id: JobId) -> Vec<(String, String)> {
    let printed = ground.gpufleet(folder, &["why", &job_id.to_string(), "-o", "json"]).await.json();
    let text = |reason: &Value, field: &str| reason[field].as_str().unwrap().to_owned();
    let reasons = printed["reasons"].as_array().unwrap().iter();
    reasons.map(|reason| (text(reason, "reason"), text(reason, "text"))).collect()
}

/// Waits until this is the first reason, because heartbeats and events arrive later than replies. Returns its text.
async fn first_reason(ground: &Ground, job_id: JobId, wanted: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    ground.poll_job("queued", job_id, |job| job.state == JobState::Queued).await;
    let mut text = String::new();
    poll_until(&format!("the reason is {wanted}"), async || {
        let reasons = why(ground, folder.path(), job_id).await;
        println!("{reasons:?}");
        match reasons.into_iter().next() {
            Some((first, told)) if first == wanted => {
                text = told;
                true
            }
            _ => false,
        }
    })
    .await;
    text
}

/// Starts a job that never ends, and waits until it runs.
async fn occupy(ground: &Ground, job: Job) -> ConfirmedJob {
    let handle = ground.client().await.submit(job).await.unwrap();
    ground.poll_job("running", handle.id(), |job| job.state == JobState::Running).await;
    handle
}

async fn release(ground: &Ground, handles: &[&ConfirmedJob]) {
    let jobs = handles.iter().map(|handle| handle.id()).collect();
    ground.client().await.cancel(Selection { jobs, ..Selection::default() }, None).await.unwrap();
    for handle in handles {
        ground.final_job(handle.id()).await;
    }
}

/// Publishes events as a worker would.
async fn publish(ground: &Ground, events: &[Event]) {
    let message = Message {
        exchange: EVENTS_WORKER,
        routing_key: EVENTS_KEY.to_owned(),
        body: encode_events(events).unwrap(),
        properties: Properties { kind: Some(TYPE_EVENTS.to_owned()), ..Properties::default() },
    };
    ground.broker().await.publish(message).await.unwrap();
}

fn described(at_ms: i64) -> JobInfo {
    JobInfo { submitted_ms: Some(at_ms), ..JobInfo::new(JobId::new(), "saxpy") }
}

fn now_ms() -> i64 {
    chrono::Utc::now().timestamp_millis()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_worker_serves_the_pool() {
    let (ground, fleet) = Ground::with_client("why-no-consumer").await;
    let mut handle = fleet.submit(kernels::doubles(&[1.0])).await.unwrap();
    let text = first_reason(&ground, handle.id(), "no_consumer").await;
    assert!(text.contains("gpufleet-worker run --pool default"), "{text}");

    let _worker = ground.worker().await;
    handle.wait(WAIT).await.unwrap();
    ground.final_job(handle.id()).await;
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(why(&ground, folder.path(), handle.id()).await, []);
    let told = ground.gpufleet(folder.path(), &["why", &handle.id().to_string()]).await;
    assert!(told.stdout.contains("does not wait: it is succeeded"), "{told:?}");
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_no_device_fits_does_not_wait_but_fails_with_the_devices() {
    let (ground, _worker) = Ground::with_worker("why-misfit").await;
    let job = kernels::doubles(&[1.0]).requires_compute_capability(12, 0);
    let mut handle = ground.client().await.submit(job).await.unwrap();
    handle.wait(WAIT).await.unwrap_err();
    ground.final_job(handle.id()).await;
    let folder = tempfile::tempdir().unwrap();
    let told = ground.gpufleet(folder.path(), &["why", &handle.id().to_string()]).await;
    let says = ["does not wait: it is failed (", "has compute capability 12.0; available: 1 × "];
    assert!(says.iter().all(|part| told.stdout.contains(part)), "{told:?}");
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pool_had_more_than_its_share() {
    let ground = Ground::shared("why-share").await;
    let _worker = ground.worker_with(&["--pool", "team-a", "--pool", "team-b", "--jobs-per-device", "1"]).await;
    let fleet = ground.client().await;
    let in_pool = |job: Job, pool: &str| job.pool(pool.parse().unwrap());
    fleet.submit(in_pool(busy::for_millis(300), "team-a")).await.unwrap().wait(WAIT).await.unwrap();
    let endless = occupy(&ground, in_pool(kernels::endless(), "team-b")).await;
    let waits = fleet.submit(in_pool(kernels::doubles(&[1.0]), "team-a")).await.unwrap();
    let text = first_reason(&ground, waits.id(), "over_share").await;
    assert!(text.contains("got 100 %") && text.contains("is due 33 %; team-b goes first"), "{text}");
    release(&ground, &[&endless, &waits]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn running_jobs_have_the_memory() {
    let ground = Ground::shared("why-memory").await;
    let _worker = ground.worker_in(&[], &[("GPUFLEET_EMULATOR_MEMORY", "48MiB")]).await;
    let endless = occupy(&ground, kernels::with_buffer_of(38 << 20)).await;
    // The job fits on an idle device, but not into the memory that is free now.
    let input = vec![1.0_f32; (13 << 20) / size_of::<f32>()];
    let job = Job::ptx(kernels::DOUBLES).input("x", input.as_slice()).zeros("y", Dtype::F32, [1]).entry("doubles");
    let job = job.cover([1]).arg_buffer("x").arg_buffer("y").arg(1_u32).output("y");
    let waits = ground.client().await.submit(job).await.unwrap();
    let text = first_reason(&ground, waits.id(), "memory").await;
    assert!(text.contains("its inputs alone need 13.0 MiB") && text.contains("leave at most 10.00 MiB"), "{text}");
    release(&ground, &[&endless, &waits]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_worker_has_taken_the_job_and_others_are_behind_it_in_the_queue() {
    let ground = Ground::shared("why-ahead").await;
    let _worker = ground.worker_with(&["--prefetch", "2", "--jobs-per-device", "1"]).await;
    let fleet = ground.client().await;
    let endless = occupy(&ground, kernels::endless()).await;
    let taken = fleet.submit(kernels::doubles(&[1.0])).await.unwrap();
    let text = first_reason(&ground, taken.id(), "busy_worker").await;
    assert!(text.contains("(running: 1)"), "{text}");
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(fleet.submit(kernels::doubles(&[1.0])).await.unwrap());
    }
    let text = first_reason(&ground, others[2].id(), "jobs_ahead").await;
    assert!(text.contains("messages wait in pool default"), "{text}");
    let all: Vec<&ConfirmedJob> = [&endless, &taken].into_iter().chain(&others).collect();
    release(&ground, &all).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_due_later() {
    let (ground, _worker) = Ground::with_worker("why-retry").await;
    let job = described(now_ms());
    let job_id = job.job_id;
    let lost = AttemptFinished {
        failure: Some(Failure::new(Verdict::Infrastructure, FailureCode::ExecutorLost, "its executor died")),
        retry_at_ms: Some(now_ms() + 600_000),
        job: Some(Box::new(job)),
        ..AttemptFinished::new(job_id, 1, "another".parse().unwrap(), now_ms(), AttemptState::Lost)
    };
    publish(&ground, &[Event::AttemptFinished(lost)]).await;
    let text = first_reason(&ground, job_id, "retry_due").await;
    assert!(text.contains("an attempt was lost: its executor died; the retry is due in"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_has_a_job_that_the_broker_does_not_have() {
    let (ground, _worker) = Ground::with_worker("why-gone").await;
    let at_ms = now_ms() - 60_000;
    // The id contains the time of the submission.
    let job_id: JobId = format!("{:08x}-{:04x}-7000-8000-00000000000a", at_ms >> 16, at_ms & 0xffff).parse().unwrap();
    publish(&ground, &[Event::Submitted(Submitted { job: JobInfo { job_id, ..described(at_ms) }, at_ms })]).await;
    let text = first_reason(&ground, job_id, "ledger_and_broker_disagree").await;
    assert!(text.contains("no message waits in pool default"), "{text}");
}
