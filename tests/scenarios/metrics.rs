//! The Prometheus metrics of a worker and of the recorder, with the names in the documentation.

use std::{collections::BTreeSet, time::Duration};

use gpufleet_schema::topology::{EVENTS_KEY, EVENTS_WORKER, TYPE_EVENTS};
use gpufleet_tests::{Ground, METRICS, Metrics, WAIT, busy, kernels};
use gpufleet_transport::{Message, Properties};

const DOCUMENTED: &str = include_str!("../../docs/src/operate/metrics.md");

/// The prefix of the recorder's metrics.
const RECORDER: &str = "gpufleet_recorder_";

/// Returns the names in the first columns of the documentation's tables of metrics, without labels.
fn documented_names() -> impl Iterator<Item = &'static str> {
    let cells = DOCUMENTED.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = cells.filter(|cell| cell.starts_with("gpufleet_")).map(|cell| cell.split(['{', '`']).next());
    names.map(|name| name.expect("a split has a first part"))
}

fn names_of_workers() -> BTreeSet<&'static str> {
    documented_names().filter(|name| !name.starts_with(RECORDER)).collect()
}

fn names_of_the_recorder() -> BTreeSet<&'static str> {
    documented_names().filter(|name| name.starts_with(RECORDER)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workers_metrics_have_the_documented_names() {
    let ground = Ground::shared("metrics").await;
    let worker = ground.worker_with(&[&METRICS[..], &["--jobs-per-device", "1"]].concat()).await;
    let fleet = ground.client().await;
    let endless = kernels::endless().time_limit(Duration::from_millis(200));
    fleet.submit(endless).await.unwrap().wait(WAIT).await.unwrap_err();
    // The paused executor is the one that took over.
    fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    worker.pause_executors();
    let mut handles = fleet.submit_many((0..3).map(|_| busy::for_millis(1))).await;

    let (pool, device) = ([("pool", "default")], [("device", "0")]);
    worker.poll_metric("one runs", "gpufleet_jobs_running", &device, 1.0).await;
    worker.poll_metric("two wait", "gpufleet_jobs_waiting", &pool, 2.0).await;
    let metrics = worker.metrics().await;
    assert_eq!(metrics.names(), names_of_workers());
    let value = |name, labels: &[_]| metrics.sum(name, labels);
    assert_eq!(value("gpufleet_worker_info", &[("worker", worker.name())]), 1.0);
    assert_eq!(value("gpufleet_ready", &[]), 1.0);
    assert_eq!(value("gpufleet_broker_connected", &[]), 1.0);
    assert_eq!(value("gpufleet_publishing_blocked", &[]), 0.0);
    assert_eq!(value("gpufleet_attempts_total", &[("pool", "default"), ("state", "succeeded")]), 1.0);
    assert_eq!(value("gpufleet_attempts_total", &[("state", "failed")]), 1.0);
    assert_eq!(value("gpufleet_attempts_total", &pool), 2.0);
    assert_eq!(value("gpufleet_executor_losses_total", &[("device", "0"), ("cause", "job")]), 1.0);
    assert_eq!(value("gpufleet_executor_losses_total", &device), 1.0);
    assert_eq!(value("gpufleet_messages_refused_total", &pool), 0.0);
    assert_eq!(value("gpufleet_stale_settlements_total", &[]), 0.0);
    assert_eq!(value("gpufleet_jobs_running", &[("device", "0"), ("pool", "default")]), 1.0);
    assert!(value("gpufleet_messages_held", &pool) >= 1.0);
    assert!(value("gpufleet_jobs_memory_bytes", &device) >= 4.0);
    assert!(value("gpufleet_device_memory_bytes", &device) > value("gpufleet_jobs_memory_bytes", &device));
    assert_eq!(value("gpufleet_device_in_service", &device), 1.0);
    assert_eq!(value("gpufleet_device_info", &[("device", "0"), ("emulated", "true")]), 1.0);

    worker.resume_executors();
    for handle in &mut handles {
        busy::assert_done(&handle.as_mut().unwrap().wait(WAIT).await.unwrap().outputs);
    }
    worker.poll_metric("all messages are settled", "gpufleet_messages_held", &pool, 0.0).await;
    worker.poll_metric("all events are confirmed", "gpufleet_events_unconfirmed_bytes", &[], 0.0).await;
    let metrics = worker.metrics().await;
    assert_eq!(metrics.sum("gpufleet_attempts_total", &[("state", "succeeded")]), 4.0);
    let stage = |stage| metrics.sum("gpufleet_job_stage_seconds_count", &[("pool", "default"), ("stage", stage)]);
    // A kernel that was stopped at its time limit has no measured time.
    assert_eq!((stage("end_to_end"), stage("kernel")), (5.0, 4.0));
    assert_eq!(metrics.sum("gpufleet_jobs_running", &device) + metrics.sum("gpufleet_jobs_waiting", &pool), 0.0);
    ground.check_history(5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_waits_for_its_broker_serves_metrics() {
    let ground = Ground::shared("metrics-no-broker").await;
    let absent = ["--amqp-url", "amqp://gpufleet:secret@127.0.0.1:1/gpufleet"];
    let worker = ground.start_worker(&[&METRICS[..], &absent].concat());
    ground.poll_log("the worker waits", &worker, "broker unreachable").await;
    let metrics = worker.metrics().await;
    assert_eq!(metrics.sum("gpufleet_broker_connected", &[]), 0.0);
    assert_eq!(metrics.sum("gpufleet_ready", &[]), 0.0);
}

fn sum(metrics: &Metrics, name: &str, labels: &[(&str, &str)]) -> f64 {
    metrics.sum(&format!("{RECORDER}{name}"), labels)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorders_metrics_have_the_documented_names_and_count_what_it_recorded() {
    let ground =
        Ground::shared_as("recorder-metrics", |builder| builder.recorder_process(true).recorder_args(METRICS)).await;
    let _worker = ground.worker().await;
    let fleet = ground.client().await;
    fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    let body = b"no events".to_vec();
    let properties = Properties { kind: Some(TYPE_EVENTS.to_owned()), ..Properties::default() };
    let routing_key = EVENTS_KEY.to_owned();
    let message = Message { exchange: EVENTS_WORKER, routing_key, body, properties };
    ground.broker().await.publish(message).await.unwrap();

    ground
        .poll_recorder("the job is recorded", |now| sum(now, "events_total", &[("kind", "attempt_finished")]) == 1.0)
        .await;
    let dead = |now: &Metrics| sum(now, "queue_messages", &[("queue", "dead")]) == 1.0;
    ground.poll_recorder("the dead letter is seen", dead).await;
    let metrics = ground.recorder_metrics().await;
    assert_eq!(metrics.names(), names_of_the_recorder());
    let value = |name, labels: &[_]| sum(&metrics, name, labels);
    for is_true in ["info", "ready", "broker_connected", "database_reachable"] {
        assert_eq!(value(is_true, &[]), 1.0, "{is_true}");
    }
    assert_eq!(value("dead_lettered_total", &[]), 1.0);
    assert!(value("rows_total", &[("table", "jobs")]) >= 1.0);
    // A start that was recorded before the end has written the row too.
    let starts = value("events_total", &[("kind", "started")]);
    assert!((1.0..=1.0 + starts).contains(&value("rows_total", &[("table", "attempts")])), "{starts} starts");
    assert!(value("rows_total", &[("table", "workers")]) >= 1.0);
    assert!(value("batch_events_sum", &[]) >= 2.0, "the attempt, and a heartbeat");
    assert_eq!(value("batch_seconds_count", &[]), value("batch_events_count", &[]));
    assert_eq!(value("errors_total", &[]) + value("disk_errors_total", &[]), 0.0);
    assert_eq!(value("queue_messages", &[("queue", "events")]), 0.0);
    assert!(value("lag_seconds", &[]) < WAIT.as_secs_f64());
    for stage in ["queue", "kernel", "end_to_end"] {
        assert_eq!(value("job_stage_seconds_count", &[("pool", "default"), ("stage", stage)]), 1.0, "{stage}");
    }
    fleet.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorder_without_its_database_shows_that_and_how_far_it_lags() {
    let ground =
        Ground::alone_as("recorder-outage", |builder| builder.recorder_process(true).recorder_args(METRICS)).await;
    let before = ground.recorder_metrics().await;
    assert_eq!(sum(&before, "database_reachable", &[]), 1.0);
    ground.services().postgres().stop().await.unwrap();
    let _worker = ground.worker().await;
    let is_away = |now: &Metrics| sum(now, "database_reachable", &[]) == 0.0;
    ground.poll_recorder("the database is away", is_away).await;
    let metrics = ground.recorder_metrics().await;
    assert!(sum(&metrics, "errors_total", &[("disposition", "retry")]) >= 1.0);
    assert_eq!(sum(&metrics, "events_total", &[]), 0.0, "the heartbeat waits");
    assert!(sum(&metrics, "lag_seconds", &[]) > sum(&before, "lag_seconds", &[]));
    ground.services().postgres().restart().await.unwrap();
    ground
        .poll_recorder("the heartbeat is recorded", |now| sum(now, "events_total", &[("kind", "worker_seen")]) >= 1.0)
        .await;
    assert_eq!(sum(&ground.recorder_metrics().await, "database_reachable", &[]), 1.0);
}
