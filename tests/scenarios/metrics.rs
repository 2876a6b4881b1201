//! A worker's Prometheus metrics, with the names in the documentation.

use std::{collections::BTreeSet, time::Duration};

use gpufleet_tests::{Ground, METRICS, WAIT, busy, kernels};

const DOCUMENTED: &str = include_str!("../../docs/src/operate/metrics.md");

/// The names in the first column of the table of metrics, without labels.
fn documented_names() -> BTreeSet<&'static str> {
    let cells = DOCUMENTED.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = cells.filter(|cell| cell.starts_with("gpufleet_")).map(|cell| cell.split(['{', '`']).next());
    names.map(|name| name.expect("a split has a first part")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workers_metrics_have_the_documented_names() {
    let ground = Ground::shared("metrics").await;
    let worker = ground.worker_with(&[&METRICS[..], &["--jobs-per-device", "1"]].concat()).await;
    let fleet = ground.client().await;
    fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    let endless = kernels::endless().time_limit(Duration::from_millis(200));
    fleet.submit(endless).await.unwrap().wait(WAIT).await.unwrap_err();
    worker.pause_executors();
    let mut handles = fleet.submit_many((0..3).map(|_| busy::for_millis(1))).await;

    let (pool, device) = ([("pool", "default")], [("device", "0")]);
    worker.poll_metric("one runs", "gpufleet_jobs_running", &device, 1.0).await;
    worker.poll_metric("two wait", "gpufleet_jobs_waiting", &pool, 2.0).await;
    let metrics = worker.metrics().await;
    assert_eq!(metrics.names(), documented_names());
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
