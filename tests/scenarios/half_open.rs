//! A worker's link is half-open or slow, or the worker is frozen. The broker redelivers the job to another worker, and
//! later messages of the first worker have no effect. (faults 5, 6 and 7)

use std::time::Duration;

use gpufleet_local::Signal;
use gpufleet_schema::{
    AttemptState, JobId, JobState, PoolName, Priority,
    topology::{TASKS, task_key, task_queue},
};
use gpufleet_tests::{Ground, METRICS, Proxy, Silence, TestWorker, WAIT, busy, delivered, poll_until};
use gpufleet_transport::{Broker, Message, Options, Properties};

/// The heartbeat of the connections. The broker closes a silent connection after two to three heartbeats.
const HEARTBEAT: [&str; 2] = ["--heartbeat", "4s"];

const STALE: &str = "gpufleet_stale_settlements_total";

/// Waits until the job has these attempts: worker, state, and whether it is superseded.
async fn poll_attempts(ground: &Ground, job_id: JobId, wanted: [(&TestWorker, AttemptState, bool); 2]) {
    let wanted = wanted.map(|(worker, state, superseded)| (worker.name().to_owned(), state, superseded));
    ground
        .poll_attempts("both attempts", job_id, |detail| {
            let rows = detail.attempts.iter();
            rows.map(|row| (row.worker.clone(), row.state, row.superseded)).eq(wanted.iter().cloned())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledgement_lost_on_a_half_open_link_does_not_change_the_outcome() {
    let ground = Ground::shared("half-open").await;
    let proxy = ground.proxy().await;
    let first = ground.worker_with(&[&["--amqp-url", proxy.url()], &HEARTBEAT[..]].concat()).await;
    let fleet = ground.client().await;
    let mut handle = fleet.submit(busy::until_released()).await.unwrap();
    ground.poll_started(handle.id()).await;
    // The acknowledgement is lost. Reply and events arrive, because they use another connection.
    proxy.silence(Silence::Consuming);
    // The job ends long before the worker notices the loss.
    ground.release_jobs();
    assert_eq!(handle.wait(WAIT).await.unwrap().attempt, 1);
    assert_eq!(ground.final_job(handle.id()).await.job.worker.as_deref(), Some(first.name()));

    let second = ground.worker().await;
    let finals = [(&first, AttemptState::Succeeded, false), (&second, AttemptState::Succeeded, true)];
    poll_attempts(&ground, handle.id(), finals).await;
    poll_until("the second reply is dropped", async || fleet.counts().replies_dropped == 1).await;

    // The first worker notices the loss by itself and works again.
    ground.poll_log("the loss of the link", &first, "broker connection lost").await;
    proxy.clear();
    assert_eq!(second.stop(Signal::Terminate).await, Some(0));
    let mut next = fleet.submit(busy::for_millis(1)).await.unwrap();
    assert_eq!(next.wait(WAIT).await.unwrap().ran_on.unwrap().worker.as_str(), first.name());
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_acknowledgement_is_logged_and_counted() {
    let ground = Ground::shared("stale-ack").await;
    let proxy = ground.proxy().await;
    let worker = ground.worker_with(&[&["--amqp-url", proxy.url()], &HEARTBEAT[..], &METRICS].concat()).await;
    let fleet = ground.client().await;
    worker.pause_executors();
    let mut handle = fleet.submit(busy::for_millis(1)).await.unwrap();
    ground.poll_job("running", handle.id(), |job| job.state == JobState::Running).await;
    proxy.silence(Silence::Consuming);
    ground.poll_log("the loss of the link", &worker, "broker connection lost").await;
    worker.poll_metric("the metric shows the loss", "gpufleet_broker_connected", &[], 0.0).await;
    assert_eq!(worker.metrics().await.sum(STALE, &[]), 0.0);

    // The job has continued meanwhile, and its delivery belongs to the lost connection.
    proxy.clear();
    worker.resume_executors();
    handle.wait(WAIT).await.unwrap();
    worker.poll_metric("the stale acknowledgement", STALE, &[], 1.0).await;
    ground.poll_log("the redelivery is acknowledged", &worker, "duplicate of an answered message").await;
    let detail = ground.final_job(handle.id()).await;
    assert_eq!(detail.job.state, JobState::Succeeded);
    let metrics = worker.metrics().await;
    assert_eq!(metrics.sum(STALE, &[]), 1.0, "the second delivery was acknowledged in time");
    assert_eq!(metrics.sum("gpufleet_attempts_total", &[]), 1.0);
    ground.check_history(1).await;
}

/// A retry has the message id and the body of the original message.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_not_mistaken_for_a_duplicate_after_a_lost_acknowledgement() {
    let ground = Ground::shared("stale-again").await;
    let proxy = ground.proxy().await;
    let worker = ground.worker_with(&[&["--amqp-url", proxy.url()], &METRICS[..]].concat()).await;
    let (broker, fleet) = (ground.broker().await, ground.client().await);
    let queue = task_queue(&PoolName::default(), Priority::Normal);
    let all_out = async || {
        let depth = broker.queue_depth(&queue).await.unwrap().unwrap();
        depth.messages == 0 && depth.consumers == 1
    };
    worker.pause_executors();
    let mut handle = fleet.submit(busy::for_millis(1)).await.unwrap();
    ground.poll_job("running", handle.id(), |job| job.state == JobState::Running).await;
    proxy.cut();
    ground.poll_log("the loss of the link", &worker, "broker connection lost").await;
    worker.poll_metric("a new link", "gpufleet_broker_connected", &[], 1.0).await;
    worker.poll_metric("the job is delivered again", "gpufleet_messages_held", &[], 2.0).await;

    // The acknowledgements of the job and of its retry are both lost, so the broker redelivers both.
    proxy.silence(Silence::Consuming);
    worker.kill_executor().await;
    ground.poll_log("the stale acknowledgement", &worker, "connection lost before the message was settled").await;
    poll_until("the retry is in the queue", async || ground.messages_in(&queue).await >= 2).await;
    poll_until("the retry is delivered", all_out).await;
    proxy.cut();
    proxy.clear();
    handle.wait(WAIT).await.unwrap();
    poll_until("the queue is empty", async || ground.messages_in(&queue).await == 0).await;
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_worker_that_wakes_after_its_job_ran_elsewhere_does_not_change_the_outcome() {
    let ground = Ground::shared("frozen").await;
    let first = ground.worker_with(&["--heartbeat", "12s"]).await;
    let fleet = ground.client().await;
    // The job's end, and then its time limit, pass before the broker closes the worker's connection.
    let job = busy::for_seconds(10).time_limit(Duration::from_secs(20));
    let mut handle = fleet.submit(job).await.unwrap();
    ground.poll_started(handle.id()).await;
    first.process().pause();
    let second = ground.worker().await;
    let result = handle.wait(WAIT).await.unwrap();
    assert_eq!((result.attempt, result.ran_on.unwrap().worker.as_str()), (2, second.name()));

    first.process().resume();
    let finals = [(&first, AttemptState::Succeeded, true), (&second, AttemptState::Succeeded, false)];
    poll_attempts(&ground, handle.id(), finals).await;
    poll_until("the late reply is dropped", async || fleet.counts().replies_dropped == 1).await;
    assert_eq!(fleet.counts().replies, 1);
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_connection_breaks_while_it_publishes_answers_each_job_once() {
    const JOBS: usize = 60;
    let ground = Ground::shared("cut-off").await;
    let proxy = ground.proxy().await;
    proxy.delay(Duration::from_millis(2));
    let _worker = ground.worker_with(&["--amqp-url", proxy.url()]).await;
    let fleet = ground.client().await;
    // The connection breaks in a frame header, in a body, or between messages. The replies alone have more bytes than
    // this.
    for bytes in [1, 700, 3_000, 4_321] {
        let breaks = proxy.breaks();
        proxy.cut_after(bytes);
        let mut handles = fleet.submit_many((0..JOBS / 4).map(|_| busy::for_millis(5))).await;
        for handle in &mut handles {
            busy::assert_done(&handle.as_mut().unwrap().wait(WAIT).await.unwrap().outputs);
        }
        assert!(proxy.breaks() > breaks, "nothing broke after {bytes} bytes");
        proxy.clear();
    }
    ground.check_history(JOBS).await;
}

/// Changes the prefetch of a consumer while an unsettled delivery keeps its channel open, so that it stops waiting for
/// the broker's answer. Checks that the abandoned subscription holds no messages.
async fn an_unanswered_subscription_holds_no_messages(label: &str, disturb: impl FnOnce(&Proxy)) {
    const MESSAGES: u8 = 5;
    let ground = Ground::shared(label).await;
    let (proxy, direct) = (ground.proxy().await, ground.broker().await);
    let publish = async |number: u8| {
        let routing_key = task_key(&PoolName::default(), Priority::Normal);
        let properties = Properties::default();
        let exchange = TASKS;
        direct.publish(Message { exchange, routing_key, body: vec![number], properties }).await.unwrap();
    };
    // Neither side may treat the silence as the end of the connection.
    let heartbeat = Duration::from_secs(60);
    let options = Options { heartbeat, ..Options::new(proxy.url().parse().unwrap(), "a reader") };
    let reader = Broker::connect(options).await.unwrap();
    let mut consumer = reader.consume(task_queue(&PoolName::default(), Priority::Normal), 2);
    publish(0).await;
    let unsettled = delivered(&mut consumer).await;

    disturb(&proxy);
    consumer.set_prefetch(u16::from(MESSAGES)).await;
    for number in 1..=MESSAGES {
        publish(number).await;
    }
    proxy.clear();
    let mut numbers: Vec<u8> = Vec::new();
    for _ in 0..MESSAGES {
        let delivery = delivered(&mut consumer).await;
        numbers.extend(&delivery.body);
        delivery.ack().await.unwrap();
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=MESSAGES).collect::<Vec<_>>());
    unsettled.ack().await.unwrap();
}

/// The broker confirms the end of the old subscription in time, and the new subscription too late.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_is_confirmed_late_holds_no_messages() {
    let slowly = |proxy: &Proxy| proxy.delay_consuming(Duration::from_secs(3));
    an_unanswered_subscription_holds_no_messages("late-subscription", slowly).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_is_cancelled_late_holds_no_messages() {
    let silent = |proxy: &Proxy| proxy.silence(Silence::Consuming);
    an_unanswered_subscription_holds_no_messages("late-end", silent).await;
}
