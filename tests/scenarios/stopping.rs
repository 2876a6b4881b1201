//! A worker that is told to stop finishes its running jobs, requeues the others, and exits with 0. (fault 44)

use gpufleet_ledger::JobRow;
use gpufleet_local::Signal;
use gpufleet_schema::{JobState, PoolName, Priority, topology::task_queue};
use gpufleet_tests::{Ground, WAIT, busy, poll_until};

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_finishes_running_jobs_and_requeues_the_others() {
    let ground = Ground::shared("sigterm").await;
    let first = ground.worker_with(&["--jobs-per-device", "1"]).await;
    let fleet = ground.client().await;
    let mut running = fleet.submit(busy::until_released()).await.unwrap();
    ground.poll_job("running", running.id(), |job| job.state == JobState::Running).await;
    let mut waiting = fleet.submit(busy::for_millis(10)).await.unwrap();
    let broker = ground.broker().await;
    let queue = task_queue(&PoolName::default(), Priority::Normal);
    poll_until("the worker has both messages", async || {
        broker.queue_depth(&queue).await.unwrap().unwrap().messages == 0
    })
    .await;

    first.process().signal(Signal::Terminate);
    ground.poll_log("draining", &first, "draining").await;
    ground.release_jobs();
    assert_eq!(first.ended().await, Some(0));
    assert_eq!(running.wait(WAIT).await.unwrap().ran_on.unwrap().worker.as_str(), first.name());
    assert_eq!(ground.final_job(running.id()).await.job.state, JobState::Succeeded);

    let second = ground.worker().await;
    let result = waiting.wait(WAIT).await.unwrap();
    assert_eq!(result.ran_on.unwrap().worker.as_str(), second.name());
    ground.poll_worker("first has left", first.name(), |worker| worker.has_left).await;
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_skips_the_grace_period() {
    let (ground, worker, fleet) = Ground::served("second-signal").await;
    let mut handle = fleet.submit(busy::until_released()).await.unwrap();
    ground.poll_job("running", handle.id(), |job| job.state == JobState::Running).await;
    worker.process().signal(Signal::Interrupt);
    ground.poll_log("draining", &worker, "draining").await;
    assert_eq!(worker.stop(Signal::Interrupt).await, Some(0));
    let second = ground.worker().await;
    ground.release_jobs();
    assert_eq!(handle.wait(WAIT).await.unwrap().ran_on.unwrap().worker.as_str(), second.name());
    ground.check_history(1).await;
}

/// A service manager stops a worker that an operator has drained.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_signal_after_a_drain_leaves_running_jobs_their_grace_period() {
    let (ground, fleet) = Ground::with_client("signal-after-drain").await;
    let mut handle = fleet.submit(busy::until_released()).await.unwrap();
    let drained = async || {
        let worker = ground.worker_with(&["--grace", "10m"]).await;
        let runs_here = |job: &JobRow| job.state == JobState::Running && job.worker.as_deref() == Some(worker.name());
        ground.poll_job("running", handle.id(), runs_here).await;
        fleet.drain_worker(worker.name().parse().unwrap(), None).await.unwrap();
        ground.poll_log("the order", &worker, "draining").await;
        worker.process().signal(Signal::Terminate);
        ground.poll_log("the signal", &worker, "already draining").await;
        worker
    };
    assert_eq!(drained().await.stop(Signal::Terminate).await, Some(0), "the second signal ends the period");
    let worker = drained().await;
    ground.release_jobs();
    assert_eq!(worker.ended().await, Some(0));
    assert_eq!(handle.wait(WAIT).await.unwrap().ran_on.unwrap().worker.as_str(), worker.name());
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_outlasts_the_grace_period_is_requeued_and_loses_no_attempt() {
    let ground = Ground::shared("grace-over").await;
    let first = ground.worker_with(&["--grace", "1s", "--jobs-per-device", "1"]).await;
    let fleet = ground.client().await;
    // With at most one attempt, a lost attempt would dead-letter the job.
    let mut running = fleet.submit(busy::until_released().attempts_max(1)).await.unwrap();
    ground.poll_job("running", running.id(), |job| job.state == JobState::Running).await;
    let mut waiting = fleet.submit(busy::for_millis(1).attempts_max(1)).await.unwrap();
    assert_eq!(first.stop(Signal::Terminate).await, Some(0));
    ground.poll_log("the end of the grace period", &first, "grace period is over").await;
    ground.release_jobs();
    let second = ground.worker().await;
    for handle in [&mut running, &mut waiting] {
        let result = handle.wait(WAIT).await.unwrap();
        busy::assert_done(&result.outputs);
        assert_eq!(result.ran_on.unwrap().worker.as_str(), second.name());
    }
    ground.poll_worker("first has left", first.name(), |worker| worker.has_left).await;
    ground.check_history(2).await;
}

/// A service manager sends SIGKILL if a stop takes too long.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_killed_while_it_drains_loses_no_job() {
    let (ground, first) = Ground::with_worker("killed-draining").await;
    let fleet = ground.client().await;
    let mut handle = fleet.submit(busy::until_released()).await.unwrap();
    ground.poll_job("running", handle.id(), |job| job.state == JobState::Running).await;
    first.process().signal(Signal::Terminate);
    ground.poll_log("draining", &first, "draining").await;
    assert_eq!(first.stop(Signal::Kill).await, None, "the signal ended the worker, so it has no exit code");
    let second = ground.worker().await;
    ground.release_jobs();
    let result = handle.wait(WAIT).await.unwrap();
    assert_eq!((result.attempt, result.ran_on.unwrap().worker.as_str()), (2, second.name()));
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_waits_for_an_absent_broker_can_be_stopped() {
    let ground = Ground::breakable("late-broker").await;
    ground.services().broker().stop().await.unwrap();
    let worker = ground.start_worker(&[]);
    ground.poll_log("waiting", &worker, "broker unreachable").await;
    assert!(worker.is_alive());
    ground.services().broker().restart().await.unwrap();
    worker.wait_ready().await.unwrap();
    assert_eq!(worker.stop(Signal::Terminate).await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_notifies_its_service_manager_of_start_liveness_and_stop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = tokio::net::UnixDatagram::bind(&path).unwrap();
    let environment = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "200000")];
    let ground = Ground::with_environment("systemd", &environment).await;
    let worker = ground.worker().await;
    let mut told = String::new();
    // Two watchdog messages prove that the worker repeats them.
    while !(told.contains("READY=1") && told.matches("WATCHDOG=1").count() >= 2) {
        told.push_str(&datagram(&socket).await);
    }
    assert_eq!(worker.stop(Signal::Terminate).await, Some(0));
    while !told.contains("STOPPING=1") {
        told.push_str(&datagram(&socket).await);
    }
}

async fn datagram(socket: &tokio::net::UnixDatagram) -> String {
    let mut buffer = [0; 512];
    let bytes = tokio::time::timeout(WAIT, socket.recv(&mut buffer)).await.expect("a message arrives in time").unwrap();
    String::from_utf8_lossy(&buffer[..bytes]).into_owned()
}
