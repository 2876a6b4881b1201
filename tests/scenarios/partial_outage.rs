//! One queue of the broker is not running. The broker closes the whole connection of a client that subscribes to it. A worker must still
//! run jobs, send heartbeats, follow orders and drain as far as that is possible without the queue.

use std::fs;

use gpufleet::JobError;
use gpufleet_local::Signal;
use gpufleet_schema::{
    AttemptState, JobState, PoolName, Priority, Selection,
    topology::{CONTROL_QUEUE, task_queue},
};
use gpufleet_tests::{Ground, METRICS, TestWorker, WAIT, busy, kernels, poll_until};

/// The log settings with which a worker logs every attempt to subscribe.
const TALKATIVE: [(&str, &str); 1] = [("GPUFLEET_LOG", "warn,gpufleet_worker=info,gpufleet_transport::consumer=debug")];
/// The number of attempts to subscribe that the test waits for. If each of them broke the connection, it would be lost this often.
const ATTEMPTS: usize = 4;
/// The maximum number of lost connections. The first attempt may break the connection, and so may one more that was sent before the worker
/// noticed.
const LOSSES_MAX: usize = 2;

fn lines_with(worker: &TestWorker, texts: &[&str]) -> usize {
    let log = fs::read_to_string(worker.process().log()).unwrap();
    log.lines().filter(|line| texts.iter().all(|text| line.contains(text))).count()
}

/// Waits until the worker has tried several times to subscribe, and checks that its connection survived.
async fn poll_failed_subscriptions(worker: &TestWorker, queue: &str) {
    let tried = ["still not subscribed", queue];
    poll_until("the worker has tried to subscribe", async || lines_with(worker, &tried) >= ATTEMPTS).await;
    check_losses(worker);
}

fn check_losses(worker: &TestWorker) {
    let losses = lines_with(worker, &["broker connection lost", "INTERNAL_ERROR"]);
    assert!(losses <= LOSSES_MAX, "the link was lost {losses} times");
}

/// Waits until the worker has tried to read its orders and failed, because their stream is suspended. RabbitMQ 3 does not answer a
/// subscriber of such a stream. RabbitMQ 4 answers, but sends nothing.
async fn poll_unread_orders(worker: &TestWorker, subscriptions_before: usize) {
    let tried = ["still not subscribed", CONTROL_QUEUE];
    poll_until("the worker has tried to read its orders", async || {
        lines_with(worker, &tried) >= ATTEMPTS || subscriptions_to_orders(worker) > subscriptions_before
    })
    .await;
    check_losses(worker);
}

fn subscriptions_to_orders(worker: &TestWorker) -> usize {
    lines_with(worker, &["subscriber: subscribed", CONTROL_QUEUE])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_the_broker_does_not_start_does_not_block_the_others() {
    const JOBS: usize = 8;
    let ground = Ground::shared("queue-down").await;
    let (fleet, broker, late) = (ground.client().await, ground.broker().await, "late".parse::<PoolName>().unwrap());
    broker.declare_pool(&late).await.unwrap();
    let mut waiting = fleet.submit(kernels::doubles(&[1.0]).pool(late.clone())).await.unwrap();
    let queue = task_queue(&late, Priority::Normal);
    ground.stop_queue(&queue).await;

    let arguments = [&["--pool", late.as_str()], &METRICS[..]].concat();
    let worker = ground.start_worker_in(&arguments, &TALKATIVE);
    ground.poll_worker("a heartbeat arrives", worker.name(), |worker| !worker.has_left).await;
    poll_failed_subscriptions(&worker, &queue).await;
    for (index, handle) in
        fleet.submit_many((0..JOBS).map(|i| kernels::doubles(&[i as f32]))).await.iter_mut().enumerate()
    {
        let result = handle.as_mut().unwrap().wait(WAIT).await.unwrap();
        assert_eq!(result.output::<f32>("y").unwrap(), [2.0 * index as f32]);
    }
    let mut unwanted = fleet.submit(busy::for_seconds(600)).await.unwrap();
    ground.poll_job("running", unwanted.id(), |job| job.state == JobState::Running).await;
    fleet.cancel(Selection { jobs: vec![unwanted.id()], ..Selection::default() }, None).await.unwrap();
    let error = unwanted.wait(WAIT).await.unwrap_err();
    let JobError::Failed(failed) = error else { panic!("{error}") };
    assert_eq!(failed.state, AttemptState::Cancelled);

    let other = ground.start_worker_in(&arguments, &TALKATIVE);
    ground.poll_worker("a heartbeat of the other worker arrives", other.name(), |worker| !worker.has_left).await;
    let folder = tempfile::tempdir().unwrap();
    ground.gpufleet(folder.path(), &["workers", "drain", other.name()]).await.ok();
    assert_eq!(other.ended().await, Some(0));

    assert_eq!(worker.metrics().await.sum("gpufleet_ready", &[]), 0.0, "one of its queues is missing");
    assert_eq!(lines_with(&worker, &["supervisor: ready"]) + lines_with(&other, &["supervisor: ready"]), 0);
    ground.start_queue(&queue).await;
    worker.wait_ready().await.unwrap();
    assert_eq!(waiting.wait(WAIT).await.unwrap().output::<f32>("y").unwrap(), [2.0]);
    worker.poll_metric("the worker is ready", "gpufleet_ready", &[], 1.0).await;
    ground.check_history(JOBS + 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_drains_a_worker_that_can_not_read_its_orders() {
    let ground = Ground::shared("drain-without-orders").await;
    let (proxy, broker, fleet) = (ground.proxy().await, ground.broker().await, ground.client().await);
    let arguments = ["--amqp-url", proxy.url(), "--jobs-per-device", "1", "--grace", "80s"];
    let first = ground.worker_in(&arguments, &TALKATIVE).await;
    first.pause_executors();
    let mut running = fleet.submit(busy::for_millis(1)).await.unwrap();
    ground.poll_job("running", running.id(), |job| job.state == JobState::Running).await;
    let mut waiting = fleet.submit(busy::for_millis(1)).await.unwrap();
    ground.suspend_queue(CONTROL_QUEUE).await;
    let subscriptions = subscriptions_to_orders(&first);
    proxy.cut();
    poll_unread_orders(&first, subscriptions).await;
    let queue = task_queue(&PoolName::default(), Priority::Normal);
    poll_until("the worker has both messages", async || {
        broker.queue_depth(&queue).await.unwrap().unwrap().messages == 0
    })
    .await;

    first.process().signal(Signal::Terminate);
    ground.poll_log("draining", &first, "draining").await;
    first.resume_executors();
    let result = running.wait(WAIT).await.unwrap();
    busy::assert_done(&result.outputs);
    assert_eq!((result.attempt, result.ran_on.unwrap().worker.as_str()), (1, first.name()));
    assert_eq!(first.ended().await, Some(0));
    assert_eq!(lines_with(&first, &["grace period is over"]), 0);
    assert_eq!(ground.final_job(running.id()).await.job.state, JobState::Succeeded);
    ground.poll_worker("the ledger shows that it stopped", first.name(), |worker| worker.has_left).await;

    ground.resume_queue(CONTROL_QUEUE).await;
    let second = ground.worker().await;
    assert_eq!(waiting.wait(WAIT).await.unwrap().ran_on.unwrap().worker.as_str(), second.name());
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_a_worker_that_waits_for_its_first_orders() {
    let ground = Ground::shared("stop-without-orders").await;
    let _declared = ground.broker().await;
    ground.suspend_queue(CONTROL_QUEUE).await;
    let worker = ground.start_worker_in(&[], &TALKATIVE);
    poll_unread_orders(&worker, 0).await;
    assert_eq!(lines_with(&worker, &["supervisor: ready"]), 0, "a worker is not ready before it has read the orders");
    assert_eq!(worker.stop(Signal::Terminate).await, Some(0));
}
