//! Task queues are quorum queues unless a fleet chooses classic ones. All parts have to agree: one that does not is told the queue,
//! both kinds and what to do, and changes nothing. (fault 17)

use gpufleet::{Fleet, QueueKind};
use gpufleet_local::QueueKind as FleetKind;
use gpufleet_schema::{JobState, PoolName, Priority, topology::task_queue};
use gpufleet_tests::{Ended, Ground, WAIT, busy, kernels};

const SAXPY: [&str; 7] =
    ["submit", "saxpy", "--arg=a=2", "--zeros=x=f32[4]", "--zeros=y=f32[4]", "--timeout=60s", "-ojson"];

fn refuses(ended: &Ended, queue: &str, found: &str, wanted: &str) {
    assert_eq!(ended.code, 7, "{ended:?}");
    let names = [queue, &format!("is {found}"), wanted, &format!("GPUFLEET_QUEUE_KIND={found}")].map(str::to_owned);
    assert!(names.iter().all(|name| ended.stderr.contains(name)), "{names:?}: {ended:?}");
    assert!(ended.stdout.is_empty(), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_with_classic_queues_runs_jobs() {
    let ground = Ground::shared_with("classic", FleetKind::Classic).await;
    let _worker = ground.worker().await;
    let builder = Fleet::builder().queue_kind(QueueKind::Classic);
    let fleet = ground.client_with(builder).await;
    let mut handle = fleet.submit(kernels::doubles(&[3.0])).await.unwrap();
    assert_eq!(handle.wait(WAIT).await.unwrap().output::<f32>("y").unwrap(), [6.0]);

    let folder = tempfile::tempdir().unwrap();
    let ended = ground.gpufleet(folder.path(), &[&SAXPY[..], &["--queue-kind", "classic"]].concat()).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_disagrees_is_told_the_queue_both_kinds_and_the_remedy() {
    let ground = Ground::shared_with("classic-refused", FleetKind::Classic).await;
    let _worker = ground.worker().await;
    let folder = tempfile::tempdir().unwrap();
    let ended = ground.gpufleet(folder.path(), &SAXPY).await;
    refuses(&ended, "gpufleet.v1.tasks.default.", "classic", "quorum");

    let fleet = ground.client().await;
    let error = fleet.submit(kernels::doubles(&[3.0])).await.unwrap_err().to_string();
    assert!(error.contains("queue kind = classic") && error.contains("wants quorum"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_classic_producer_is_refused_by_a_quorum_fleet_which_goes_on() {
    let ground = Ground::shared("quorum-refuses").await;
    let _worker = ground.worker().await;
    let folder = tempfile::tempdir().unwrap();
    let classic = [&SAXPY[..], &["--queue-kind", "classic"]].concat();
    refuses(&ground.gpufleet(folder.path(), &classic).await, "gpufleet.v1.tasks.default.", "quorum", "classic");
    let ended = ground.gpufleet(folder.path(), &SAXPY).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    ground.check_history(1).await;
}

/// Classic queues do not count deliveries: a job that comes again does so as a copy with a number of its own.
#[tokio::test(flavor = "multi_thread")]
async fn on_classic_queues_every_attempt_has_a_number_of_its_own() {
    let ground = Ground::shared_with("classic-again", FleetKind::Classic).await;
    let builder = Fleet::builder().queue_kind(QueueKind::Classic);
    let fleet = ground.client_with(builder).await;
    let mut handle = fleet.submit(busy::for_seconds(12)).await.unwrap();
    for attempt in 1..=2 {
        let worker = ground.worker().await;
        ground
            .poll_job("running", handle.id(), |job| job.state == JobState::Running && job.attempt == Some(attempt))
            .await;
        worker.kill9().await.unwrap();
    }
    let _last = ground.worker().await;
    let result = handle.wait(WAIT).await.unwrap();
    assert_eq!(result.attempt, 3);
    let numbers: Vec<u32> = ground.final_job(handle.id()).await.attempts.iter().map(|a| a.attempt).collect();
    assert_eq!(numbers, [1, 2, 3]);
    ground.check_history(1).await;
}

/// A producer outlives its queues: whoever deletes them costs it one submission, and the error says to try again.
#[tokio::test(flavor = "multi_thread")]
async fn a_producer_makes_deleted_queues_again() {
    let ground = Ground::shared("queue-deleted").await;
    let fleet = ground.client().await;
    let deserted = "deserted".parse::<PoolName>().unwrap();
    let job = || kernels::doubles(&[1.0]).pool(deserted.clone());
    fleet.submit(job()).await.unwrap();
    let broker = ground.broker().await;
    for priority in Priority::ALL {
        broker.delete_queue(&task_queue(&deserted, priority)).await.unwrap();
    }
    let error = fleet.submit(job()).await.unwrap_err();
    assert!(matches!(error, gpufleet::SubmitError::NoQueue { .. }), "{error}");
    fleet.submit(job()).await.unwrap();
}
