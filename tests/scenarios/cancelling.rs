//! A cancelled job ends once, as cancelled, wherever it is: in a queue, on a device, or in a pool without workers.

use std::{collections::BTreeMap, fs, time::Duration};

use gpufleet::{FailedJob, Job, JobError};
use gpufleet_schema::{
    AttemptState, FailureCode, JobId, JobState, Selection,
    bounds::ORDER_JOBS_MAX,
    topology::{CONTROL_CLIENT, CONTROL_QUEUE},
};
use gpufleet_tests::{ConfirmedJob, Ground, Silence, TestWorker, WAIT, busy, kernels, memory_bytes, poll_until};
use gpufleet_transport::{Message, Properties};

/// The number of orders of the maximum size, which a worker needs a moment to read.
const LARGE_ORDERS: usize = 100;

fn of_run(run: &str) -> Selection {
    Selection { labels: BTreeMap::from([("run".to_owned(), run.to_owned())]), ..Selection::default() }
}

fn only(handle: &ConfirmedJob) -> Selection {
    Selection { jobs: vec![handle.id()], ..Selection::default() }
}

async fn cancelled(handle: &mut ConfirmedJob) -> FailedJob {
    let error = handle.wait(WAIT).await.unwrap_err();
    let JobError::Failed(failed) = error else { panic!("{error}") };
    assert_eq!(failed.state, AttemptState::Cancelled);
    assert_eq!(failed.failure.as_ref().unwrap().code, FailureCode::Cancelled);
    *failed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_running_job_ends_and_its_neighbour_loses_no_attempt() {
    let (ground, worker, fleet) = Ground::served("cancel-running").await;
    let mut endless = fleet.submit(busy::for_seconds(600)).await.unwrap();
    let mut neighbour = fleet.submit(busy::until_released()).await.unwrap();
    for job in [&endless, &neighbour] {
        ground.poll_started(job.id()).await;
    }
    fleet.cancel(only(&endless), Some("anna".into())).await.unwrap();
    assert_eq!(cancelled(&mut endless).await.failure.unwrap().message, "cancelled by anna");
    ground.release_jobs();
    busy::assert_done(&neighbour.wait(WAIT).await.unwrap().outputs);
    assert!(worker.is_alive());
    assert_eq!(ground.final_job(endless.id()).await.job.state, JobState::Cancelled);
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_job_that_is_cancelled_in_its_own_executor_costs_no_short_job_an_attempt() {
    let talkative = [("GPUFLEET_LOG", "gpufleet_worker=debug")];
    for (executors, attempt) in [(2, 1), (1, 2)] {
        let ground = Ground::shared("cancel-apart").await;
        let pool = format!("apart:executors={executors}");
        let worker = ground.worker_in(&["--pool", &pool, "--spare-executors", "0"], &talkative).await;
        // The pool `default` has one too.
        let all = executors + 1;
        poll_until("the executors", async || worker.count_in_log("executor ready") == all).await;
        assert_eq!((worker.executors().len(), worker.count_in_log(&format!("executors={all}"))), (all, 1));
        let fleet = ground.client().await;
        // No job of its program has ended, so its time limit says that it may run long.
        let endless = kernels::endless().time_limit(Duration::from_secs(3600));
        let submitted = async |job: Job| fleet.submit(job.pool("apart".parse().unwrap())).await.unwrap();
        let mut first = submitted(busy::until_released()).await;
        let mut long = submitted(endless).await;
        let mut last = submitted(busy::until_released()).await;
        for job in [&first, &long, &last] {
            ground.poll_started(job.id()).await;
        }
        fleet.cancel(only(&long), None).await.unwrap();
        cancelled(&mut long).await;
        ground.release_jobs();
        for short in [&mut first, &mut last] {
            let done = short.wait(WAIT).await.unwrap();
            busy::assert_done(&done.outputs);
            assert_eq!(done.attempt, attempt, "{executors} executors");
        }
        ground.check_history(3).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_queued_job_never_runs_even_on_a_later_worker() {
    let (ground, fleet) = Ground::with_client("cancel-queued").await;
    let mut unwanted = fleet.submit(busy::for_seconds(600)).await.unwrap();
    let mut wanted = fleet.submit(busy::for_millis(1)).await.unwrap();
    fleet.cancel(only(&unwanted), None).await.unwrap();
    let _worker = ground.worker().await;
    cancelled(&mut unwanted).await;
    wanted.wait(WAIT).await.unwrap();
    let detail = ground.final_job(unwanted.id()).await;
    assert_eq!(detail.job.state, JobState::Cancelled);
    assert!(detail.job.started_at.is_none(), "the job never reached a device");
    // A second cancellation changes nothing, because the first outcome is final.
    fleet.cancel(only(&unwanted), None).await.unwrap();
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_cancels_earlier_jobs_and_no_later_ones() {
    let (ground, fleet) = Ground::with_client("cancel-label").await;
    let sweep = |run: &str| busy::for_millis(1).label("run", run);
    let mut handles = fleet.submit_many([sweep("7"), sweep("8"), sweep("7")]).await;
    fleet.cancel(of_run("7"), None).await.unwrap();
    let mut after = fleet.submit(sweep("7")).await.unwrap();
    let _worker = ground.worker().await;
    for (index, handle) in handles.iter_mut().enumerate() {
        let handle = handle.as_mut().unwrap();
        if index == 1 {
            handle.wait(WAIT).await.unwrap();
        } else {
            cancelled(handle).await;
        }
    }
    after.wait(WAIT).await.unwrap();
    ground.check_history(4).await;
}

/// Publishes a task without a time of submission, as other clients may.
async fn publish_untimed(ground: &Ground, job: Job) -> JobId {
    let mut task = job.build().unwrap().task;
    task.submitted_ms = None;
    ground.publish_task(&task).await;
    task.job_id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_cancels_waiting_jobs_without_a_time_of_submission() {
    let (ground, fleet) = Ground::with_client("cancel-untimed").await;
    let sweep = || busy::for_millis(1).label("run", "7");
    let before = publish_untimed(&ground, sweep()).await;
    fleet.cancel(of_run("7"), None).await.unwrap();
    let after = publish_untimed(&ground, sweep()).await;
    let _worker = ground.worker().await;
    assert_eq!(ground.final_job(before).await.job.state, JobState::Cancelled);
    assert_eq!(ground.final_job(after).await.job.state, JobState::Succeeded);
    ground.check_history(2).await;
}

/// After the worker has reconnected, it receives the job at once, but the cancellation only after many other orders.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_cancelled_while_its_worker_is_disconnected_never_runs() {
    let ground = Ground::shared("cancel-cut-off").await;
    let (proxy, fleet) = (ground.proxy().await, ground.client().await);
    for _ in 0..LARGE_ORDERS {
        let jobs = std::iter::repeat_with(JobId::new).take(ORDER_JOBS_MAX).collect();
        fleet.cancel(Selection { jobs, ..Selection::default() }, None).await.unwrap();
    }
    let worker = ground.worker_with(&["--amqp-url", proxy.url()]).await;
    proxy.silence(Silence::All);
    proxy.cut();
    ground.poll_log("the loss of the link", &worker, "broker connection lost").await;
    let mut unwanted = fleet.submit(busy::for_millis(1)).await.unwrap();
    fleet.cancel(only(&unwanted), None).await.unwrap();
    let mut wanted = fleet.submit(busy::for_millis(1)).await.unwrap();
    proxy.clear();
    cancelled(&mut unwanted).await;
    wanted.wait(WAIT).await.unwrap();
    assert!(ground.final_job(unwanted.id()).await.job.started_at.is_none(), "the job never reached a device");
    let read = orders_read_since_the_interruption(&worker).await;
    assert!(read < LARGE_ORDERS, "{read} orders: the worker has read old ones again");
    ground.check_history(2).await;
}

async fn orders_read_since_the_interruption(worker: &TestWorker) -> usize {
    let log = worker.process().log();
    let read = || {
        let log = fs::read_to_string(&log).ok()?;
        let (_, since) = log.split_once("broker connection restored")?;
        let (_, count) = since.split_once("all orders read orders=")?;
        count.split_whitespace().next()?.parse().ok()
    };
    poll_until("the orders since the interruption", async || read().is_some()).await;
    read().unwrap()
}

/// The worker's offset in the old stream means nothing in the new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_reads_a_recreated_order_stream_from_its_beginning() {
    let ground = Ground::shared("cancel-new-log").await;
    let (proxy, fleet) = (ground.proxy().await, ground.client().await);
    for _ in 0..LARGE_ORDERS {
        fleet.cancel(Selection { jobs: vec![JobId::new()], ..Selection::default() }, None).await.unwrap();
    }
    let worker = ground.worker_with(&["--amqp-url", proxy.url()]).await;
    proxy.silence(Silence::All);
    proxy.cut();
    ground.poll_log("the loss of the link", &worker, "broker connection lost").await;
    ground.broker().await.delete_queue(CONTROL_QUEUE).await.unwrap();
    ground.declare_pools(&[]).await;
    let mut unwanted = fleet.submit(busy::for_millis(1)).await.unwrap();
    fleet.cancel(only(&unwanted), None).await.unwrap();
    proxy.clear();
    cancelled(&mut unwanted).await;
    ground.poll_log("the reason for a new start", &worker, "the stream was recreated").await;
    let mut wanted = fleet.submit(busy::for_millis(1)).await.unwrap();
    wanted.wait(WAIT).await.unwrap();
    assert!(worker.is_alive());
    ground.check_history(2).await;
}

/// A client sends orders that are far larger than allowed, and more of them than a stream keeps.
#[tokio::test(flavor = "multi_thread")]
async fn a_clients_orders_take_no_memory_of_workers_and_push_out_no_order_of_an_operator() {
    const ORDERS: usize = 9;
    const ORDER_BYTES: usize = 15 << 20;
    /// The maximum memory. A worker without jobs takes some tens of MiB; the ids of the orders alone would take 300
    /// MiB.
    const MEMORY_MAX: u64 = 200 << 20;
    let ground = Ground::shared("cancel-flood").await;
    let (fleet, broker) = (ground.client().await, ground.broker().await);
    let mut unwanted = fleet.submit(busy::for_millis(1)).await.unwrap();
    fleet.cancel(only(&unwanted), Some("olga".into())).await.unwrap();
    for _ in 0..ORDERS {
        let properties = Properties { user_id: Some(broker.urls().user().to_owned()), ..Properties::default() };
        let (exchange, routing_key) = (CONTROL_CLIENT, String::new());
        let order = Message { exchange, routing_key, body: order_of(ORDER_BYTES), properties };
        broker.publish(order).await.unwrap();
    }
    let worker = ground.worker().await;
    assert_eq!(cancelled(&mut unwanted).await.failure.unwrap().message, "cancelled by olga");
    let peak = memory_bytes(worker.process().pid(), "VmHWM").unwrap();
    assert!(peak < MEMORY_MAX, "the worker took {} MiB", peak >> 20);
    let log = fs::read_to_string(worker.process().log()).unwrap();
    assert!(log.contains("the maximum is 65536") && log.len() < 1 << 20, "{} bytes of log", log.len());
    ground.check_history(1).await;
}

/// Returns a cancellation in JSON of at least this size.
fn order_of(bytes: usize) -> Vec<u8> {
    let id = || format!("\"{}\"", JobId::new());
    let ids = std::iter::repeat_with(id).take(bytes / (id().len() + 1) + 1).collect::<Vec<_>>().join(",");
    format!(r#"{{"version":1,"at_ms":1,"command":{{"cancel":{{"jobs":[{ids}]}}}}}}"#).into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_cancels_waits_and_prints_the_outcome() {
    let (ground, _worker, fleet) = Ground::served("cancel-command").await;
    let mut job = fleet.submit(busy::for_seconds(600)).await.unwrap();
    ground.poll_job("running", job.id(), |job| job.state == JobState::Running).await;
    let folder = tempfile::tempdir().unwrap();
    let id = job.id().to_string();
    // A timeout that no clock can represent.
    let ended = ground.gpufleet(folder.path(), &["cancel", &id, "--wait", "--timeout", "500000000000years"]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (0, format!("{id}  cancelled\n").as_str()), "{}", ended.stderr);
    cancelled(&mut job).await;
    ground.check_history(1).await;

    let ended = ground.gpufleet(folder.path(), &["cancel", "0123"]).await;
    assert_eq!(ended.code, 9, "{}", ended.stderr);
    let ended = ground.gpufleet(folder.path(), &["cancel"]).await;
    assert_eq!(ended.code, 2, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_names_the_jobs_that_start_again() {
    let (ground, _worker, fleet) = Ground::served("cancel-neighbours").await;
    let mut unwanted = fleet.submit(busy::for_seconds(600)).await.unwrap();
    let mut neighbour = fleet.submit(busy::until_released().name("train")).await.unwrap();
    for job in [&unwanted, &neighbour] {
        ground.poll_job("running", job.id(), |job| job.state == JobState::Running).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let id = unwanted.id().to_string();
    let ended = ground.gpufleet(folder.path(), &["cancel", &id]).await.ok();
    let (first, named) = ended.stderr.split_once(": ").unwrap_or_else(|| panic!("{}", ended.stderr));
    assert!(first.starts_with("1 other job runs in the same pool on the same device"), "{first}");
    assert_eq!(named, format!("{} (train)\n", neighbour.id()));
    cancelled(&mut unwanted).await;
    ground.release_jobs();
    assert_eq!(neighbour.wait(WAIT).await.unwrap().attempt, 2);
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_cancel_command_cancels_nothing_and_a_good_one_reports_success() {
    let (ground, fleet) = Ground::with_client("cancel-doubts").await;
    let mut job = fleet.submit(busy::for_millis(1).label("run", "7")).await.unwrap();
    let mut other = fleet.submit(busy::for_millis(1).label("run", "8").label("try", "1")).await.unwrap();
    let mut third = fleet.submit(busy::for_millis(1).label("run", "8")).await.unwrap();
    let id = third.id().to_string();
    let folder = tempfile::tempdir().unwrap();
    let run = async |arguments: &[&str]| ground.gpufleet(folder.path(), arguments).await;

    let ended = run(&["cancel", "--label", "run=7", "--label", "run=8"]).await;
    assert_eq!(ended.code, 2, "no job has both labels: {}{}", ended.stdout, ended.stderr);
    let nowhere = "postgres://nobody@127.0.0.1:1/nothing";
    let ended = run(&["cancel", &job.id().to_string(), "--wait", "--database-url", nowhere]).await;
    assert_eq!(ended.code, 8, "{}", ended.stderr);

    let ended = run(&["cancel", "--label", "run=8", "--label", "try=1"]).await;
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (0, "requested cancellation of the jobs with labels run=8 and try=1\n")
    );
    let ended = run(&["cancel", &id, "--wait", "--timeout", "1ms"]).await;
    assert_eq!(ended.code, 6, "no worker answers the job: {}", ended.stderr);
    assert!(ended.stderr.contains("the cancellation stays in force"), "{}", ended.stderr);

    let _worker = ground.worker().await;
    job.wait(WAIT).await.unwrap();
    cancelled(&mut other).await;
    cancelled(&mut third).await;
    ground.check_history(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listed_worker_exits_after_a_drain_order() {
    let (ground, worker, fleet) = Ground::served("drain-order").await;
    let mut running = fleet.submit(busy::until_released()).await.unwrap();
    ground.poll_job("running", running.id(), |job| job.state == JobState::Running).await;
    let folder = tempfile::tempdir().unwrap();
    let ended = ground.gpufleet(folder.path(), &["workers"]).await;
    assert!(ended.stdout.contains(worker.name()) && ended.stdout.contains(" up "), "{}{}", ended.stdout, ended.stderr);

    let ended = ground.gpufleet(folder.path(), &["workers", "drain", "worker-that-never-was"]).await;
    assert_eq!(ended.code, 9, "{}{}", ended.stdout, ended.stderr);
    ground.gpufleet(folder.path(), &["workers", "drain", worker.name()]).await.ok();
    ground.release_jobs();
    busy::assert_done(&running.wait(WAIT).await.unwrap().outputs);
    assert_eq!(worker.ended().await, Some(0));

    // The next worker of this name also reads the order, and keeps running.
    worker.restart().await.unwrap();
    fleet.submit(busy::for_millis(1)).await.unwrap().wait(WAIT).await.unwrap();
    assert!(worker.is_alive());
    ground.check_history(2).await;
}
