//! A broker that is frozen, short of memory, or past its acknowledgement timeout: submissions return the correct result
//! within their deadline, running jobs continue, and every confirmed job ends once. (faults 10, 11, 13 and 18)

use std::time::{Duration, Instant};

use gpufleet::{Fleet, SubmitError};
use gpufleet_schema::{
    JobState, PoolName, Priority,
    topology::{DEAD, DEAD_KEY, DEAD_QUEUE, TASKS, task_queue},
};
use gpufleet_tests::{Ground, METRICS, WAIT, busy, kernels, poll_until};
use gpufleet_transport::{DeclareError, Message, PublishError};
use tokio::io::{AsyncBufReadExt as _, BufReader};

const CONFIRM_DEADLINE: Duration = Duration::from_secs(2);
/// The deadline for reporting trouble: more than the confirm deadline, and far less than any other deadline.
const TOLD_WITHIN: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_to_a_frozen_broker_is_unknown_and_can_be_repeated() {
    let ground = Ground::breakable("frozen-broker").await;
    let _worker = ground.worker().await;
    let fleet = ground.client_with(Fleet::builder().confirm_deadline(CONFIRM_DEADLINE)).await;
    // The first job declares the queues, which may take longer than the deadline.
    fleet.submit_until_confirmed(&kernels::doubles(&[1.0])).await.wait(WAIT).await.unwrap();
    let job = kernels::doubles(&[2.0]);
    ground.services().broker().pause();
    let started = Instant::now();
    let error = fleet.submit(job.clone()).await.unwrap_err();
    let told = started.elapsed();
    ground.services().broker().resume();
    let SubmitError::Unknown { job_id, source: PublishError::Unknown { .. } } = &error else { panic!("{error:?}") };
    assert_eq!(*job_id, job.id());
    assert!(told >= CONFIRM_DEADLINE && told < TOLD_WITHIN, "{told:?}");

    // The first message may have arrived. This is the same job, so it has one outcome and one reply. The broker may still be too slow to
    // confirm in time, because it handles its backlog first.
    let mut handle = fleet.submit_until_confirmed(&job).await;
    assert_eq!(handle.wait(WAIT).await.unwrap().output::<f32>("y").unwrap(), [4.0]);
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_submission_has_the_same_deadline() {
    let ground = Ground::breakable("frozen-broker-first").await;
    // The deadline of the declarations is 30 s.
    let fleet = ground.client_with(Fleet::builder().confirm_deadline(CONFIRM_DEADLINE)).await;
    ground.services().broker().pause();
    let started = Instant::now();
    let error = fleet.submit(kernels::doubles(&[2.0])).await.unwrap_err();
    let told = started.elapsed();
    ground.services().broker().resume();
    let SubmitError::Declare(DeclareError::Timeout { waited, .. }) = &error else { panic!("{error:?}") };
    assert_eq!(*waited, CONFIRM_DEADLINE);
    assert!(told >= CONFIRM_DEADLINE && told < TOLD_WITHIN, "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_alarm_pauses_publishing_but_not_consuming() {
    const JOBS: usize = 8;
    let ground = Ground::breakable("memory-alarm").await;
    let worker = ground.worker_with(&[&["--jobs-per-device", "1"], &METRICS[..]].concat()).await;
    let patient = ground.client().await;
    let broker = ground.broker().await;
    broker.publish(letter()).await.unwrap();
    let submitted = patient.submit_many((0..JOBS).map(|_| busy::for_millis(500))).await;
    let mut handles: Vec<_> = submitted.into_iter().map(|handle| handle.unwrap()).collect();
    // The first job declares the reply queue, which may take longer than the deadline.
    let fleet = ground.client_with(Fleet::builder().confirm_deadline(CONFIRM_DEADLINE)).await;
    handles.push(fleet.submit_until_confirmed(&busy::for_millis(1)).await);
    ground.poll_started(handles[0].id()).await;
    ground.watermark("0.0000001").await;

    // The alarm reaches the connection after a moment. Until then a confirm may be late for another reason.
    let started = Instant::now();
    let mut unconfirmed = Vec::new();
    let mut reason = String::new();
    while !reason.contains("the broker blocks publishing") {
        assert!(started.elapsed() < WAIT, "no submission fails because of the alarm: {reason:?}");
        let job = busy::for_millis(1);
        match fleet.submit(job.clone()).await {
            Ok(handle) => handles.push(handle),
            Err(error) => {
                reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                unconfirmed.push(job);
            }
        }
    }
    assert!(reason.contains("memory"), "{reason}");
    ground.poll_log("the alarm", &worker, "broker blocks publishing").await;
    worker.poll_metric("and tells", "gpufleet_publishing_blocked", &[], 1.0).await;
    assert_eq!(worker.metrics().await.sum("gpufleet_broker_connected", &[]), 1.0);
    let attempts = async || worker.metrics().await.sum("gpufleet_attempts_total", &[("state", "succeeded")]);
    poll_until("the worker has run its jobs", async || attempts().await >= JOBS as f64).await;

    let letters = gpufleet_tests::dead_letters(&ground, 1).await;
    assert_eq!(letters[0].body, LETTER, "consuming continues");
    poll_until("acknowledging continues", async || ground.messages_in(DEAD_QUEUE).await == 0).await;

    ground.watermark("0.4").await;
    worker.poll_metric("the alarm is over", "gpufleet_publishing_blocked", &[], 0.0).await;
    // A job has the same id, so it runs once even if the first message arrived.
    for job in &unconfirmed {
        handles.push(fleet.submit_until_confirmed(job).await);
    }
    for handle in &mut handles {
        busy::assert_done(&handle.wait(WAIT).await.unwrap().outputs);
    }
    ground.check_history(handles.len()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_that_a_blocked_broker_does_not_take_delays_no_outcome() {
    let ground = Ground::breakable("blocked-progress").await;
    let worker = ground.worker_with(&METRICS).await;
    let fleet = ground.client().await;
    let mut job = fleet.submit(busy::until_released()).await.unwrap();
    ground.poll_started(job.id()).await;
    ground.watermark("0.0000001").await;
    worker.poll_metric("the alarm", "gpufleet_publishing_blocked", &[], 1.0).await;
    let dropped = async || worker.metrics().await.sum("gpufleet_progress_dropped_total", &[]) >= 1.0;
    poll_until("messages about the job are dropped", dropped).await;
    // The outcome waits for the broker too, and for nothing else.
    ground.release_jobs();
    ground.watermark("0.4").await;
    let since = Instant::now();
    busy::assert_done(&job.wait(WAIT).await.unwrap().outputs);
    assert!(since.elapsed() < TOLD_WITHIN, "{:?}", since.elapsed());
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_job_runs_twice_because_of_a_long_alarm() {
    let ground = Ground::alone("long-alarm").await;
    let worker = ground.worker_with(&METRICS).await;
    let fleet = ground.client().await;
    worker.pause_executors();
    let mut handle = fleet.submit(busy::for_millis(1)).await.unwrap();
    ground.poll_job("running", handle.id(), |job| job.state == JobState::Running).await;
    ground.watermark("0.0000001").await;
    worker.poll_metric("the alarm", "gpufleet_publishing_blocked", &[], 1.0).await;
    worker.resume_executors();
    worker.poll_metric("the job ends", "gpufleet_attempts_total", &[], 1.0).await;
    // A message that is published now to no queue outlasts the deadline for the worker's own message.
    let nowhere = Message { exchange: TASKS, routing_key: "nowhere".to_owned(), ..letter() };
    let error = ground.broker().await.publish(nowhere).await.unwrap_err();
    assert!(matches!(error, PublishError::Unknown { .. }), "{error:?}");
    ground.watermark("0.4").await;
    handle.wait(WAIT).await.unwrap();
    poll_until("the message is acknowledged", async || {
        worker.metrics().await.sum("gpufleet_messages_held", &[]) == 0.0
    })
    .await;
    assert_eq!(worker.metrics().await.sum("gpufleet_attempts_total", &[]), 1.0);
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_blocked_by_an_alarm_says_why_and_continues_after_it() {
    let ground = Ground::breakable("held-up").await;
    let folder = tempfile::tempdir().unwrap();
    ground.watermark("0.0000001").await;
    let job = ["submit", "mandelbrot", "--arg", "width=8", "--arg", "height=8", "--arg", "centre_x=-0.5"];
    let more = ["--arg", "centre_y=0.0", "--arg", "step=0.3", "--arg", "max_iterations=50", "--detach"];
    let mut submit = ground.start_gpufleet(folder.path(), &[&job[..], &more].concat());
    let mut told = BufReader::new(submit.stderr.take().unwrap());
    let mut line = String::new();
    tokio::time::timeout(WAIT, told.read_line(&mut line)).await.expect("the command says what blocks it").unwrap();
    assert!(line.contains("the broker blocks publishing: low on memory; the job is sent"), "{line}");

    ground.watermark("0.4").await;
    let output = tokio::time::timeout(WAIT, submit.wait_with_output()).await.expect("it ends").unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let job_id = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    let _worker = ground.worker().await;
    assert_eq!(ground.final_job(job_id).await.job.state, JobState::Succeeded);
    ground.check_history(1).await;
}

/// A submission that the broker never confirms ends at `--timeout`, long before the client stops waiting for the confirm.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_blocked_by_an_alarm_ends_at_its_timeout() {
    let ground = Ground::breakable("blocked-timeout").await;
    let folder = tempfile::tempdir().unwrap();
    ground.watermark("0.0000001").await;
    let job = ["submit", "mandelbrot", "--arg", "width=8", "--arg", "height=8", "--arg", "centre_x=-0.5"];
    let more = ["--arg", "centre_y=0.0", "--arg", "step=0.3", "--arg", "max_iterations=50", "--timeout", "10s"];
    let started = Instant::now();
    let ended = ground.gpufleet(folder.path(), &[&job[..], &more, &["-o", "json"]].concat()).await;
    let took = started.elapsed();
    ground.watermark("0.4").await;
    assert_eq!(ended.code, 6, "{ended:?}");
    assert!(took >= Duration::from_secs(10) && took < Duration::from_secs(30), "{took:?}");
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let id = report["job_id"].as_str().unwrap();
    assert!(report["state"].is_null(), "{report}");
    let error =
        format!("the broker did not confirm job {id} within 10s: the broker blocks publishing: low on memory\n");
    assert!(ended.stderr.contains(&error), "{ended:?}");
    assert!(ended.stderr.contains("hint: the job may still be submitted, and then it runs later"), "{ended:?}");

    // The broker may accept the message after the alarm. A later job is not affected.
    let _worker = ground.worker().await;
    ground.gpufleet(folder.path(), &[&job[..], &more[..6]].concat()).await.ok();
}

const LETTER: &[u8] = b"something that is published before the alarm";

fn letter() -> Message {
    Message::to(DEAD, DEAD_KEY, LETTER.to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_redeclares_its_deleted_queues() {
    let (ground, worker) = Ground::with_worker("worker-queue-deleted").await;
    let broker = ground.broker().await;
    for priority in Priority::ALL {
        broker.delete_queue(&task_queue(&PoolName::default(), priority)).await.unwrap();
    }
    ground.poll_log("it notices", &worker, "consumer interrupted").await;
    poll_until("the worker consumes from all queues again", async || {
        for priority in Priority::ALL {
            let depth = broker.queue_depth(&task_queue(&PoolName::default(), priority)).await.unwrap();
            if depth.is_none_or(|depth| depth.consumers == 0) {
                return false;
            }
        }
        true
    })
    .await;
    let fleet = ground.client().await;
    fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    ground.check_history(1).await;
}

/// The broker closes a channel whose message was not acknowledged in time, and delivers the message again, also to the
/// worker that still runs the job.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_longer_than_the_acknowledgement_timeout_ends_once() {
    let ground = Ground::breakable("consumer-timeout").await;
    ground.consumer_timeout(Duration::from_secs(2), Duration::from_millis(250)).await;
    let worker = ground.worker().await;
    let fleet = ground.client().await;
    let mut handle = fleet.submit(busy::for_seconds(6)).await.unwrap();
    let result = handle.wait(WAIT).await.unwrap();
    assert_eq!(result.attempt, 1, "the first attempt ran to its end");
    busy::assert_done(&result.outputs);
    let queue = task_queue(&PoolName::default(), Priority::Normal);
    poll_until("the queue is empty", async || ground.messages_in(&queue).await == 0).await;
    let detail = ground.final_job(handle.id()).await;
    assert_eq!((detail.job.state, detail.job.attempt), (JobState::Succeeded, Some(1)));
    assert_eq!(detail.attempts.len(), 1, "the redelivered message did not run: {:?}", detail.attempts);
    assert!(worker.is_alive());
    ground.check_history(1).await;
}

/// Submissions are refused until the worker has declared the deleted queues again.
#[tokio::test(flavor = "multi_thread")]
async fn a_producer_continues_once_a_worker_has_redeclared_deleted_queues() {
    let (ground, fleet) = Ground::with_client("queue-deleted").await;
    let broker = ground.broker().await;
    for priority in Priority::ALL {
        broker.delete_queue(&task_queue(&PoolName::default(), priority)).await.unwrap();
    }
    let error = fleet.submit(kernels::doubles(&[1.0])).await.unwrap_err();
    assert!(matches!(error, gpufleet::SubmitError::NoQueue { .. }), "{error}");
    let _worker = ground.worker().await;
    fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    for priority in Priority::ALL {
        broker.delete_queue(&task_queue(&PoolName::default(), priority)).await.unwrap();
    }
    let mut again = None;
    poll_until("the queue exists again", async || {
        again = fleet.submit(kernels::doubles(&[2.0])).await.ok();
        again.is_some()
    })
    .await;
    again.expect("the job was submitted").wait(WAIT).await.unwrap();
    ground.check_history(2).await;
}
