//! Task queues are quorum queues unless a fleet chooses classic ones. Workers declare the queues, so they must agree on
//! the kind: a mismatch is an error that names the queue, both kinds and what to do. Producers accept either kind.
//! (fault 17)

use std::process::Stdio;

use gpufleet_local::{QueueKind, programs};
use gpufleet_schema::{JobState, PoolName, Priority, topology::task_queue};
use gpufleet_tests::{Ground, WAIT, busy, kernels, poll_until};
use tokio::process::Command;

const SAXPY: [&str; 7] =
    ["submit", "saxpy", "--arg=a=2", "--zeros=x=f32[4]", "--zeros=y=f32[4]", "--timeout=60s", "-ojson"];

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_with_classic_queues_runs_jobs_of_unchanged_producers() {
    let ground = Ground::shared_with("classic", QueueKind::Classic).await;
    let _worker = ground.worker().await;
    let fleet = ground.client().await;
    let mut handle = fleet.submit(kernels::doubles(&[3.0])).await.unwrap();
    assert_eq!(handle.wait(WAIT).await.unwrap().output::<f32>("y").unwrap(), [6.0]);

    let folder = tempfile::tempdir().unwrap();
    let ended = ground.gpufleet(folder.path(), &SAXPY).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_kind_mismatch_names_the_queue_both_kinds_and_the_remedy() {
    let ground = Ground::shared_with("classic-refused", QueueKind::Classic).await;
    let mut command = Command::new(programs::ours(None, "gpufleet-worker").unwrap());
    command.args(["run", "--cuda", "emulated"]).env("GPUFLEET_AMQP_URL", &ground.endpoints().amqp_url);
    let ended = tokio::time::timeout(WAIT, command.stdin(Stdio::null()).kill_on_drop(true).output()).await;
    let output = ended.expect("it ends").unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code().is_some_and(|code| code != 0), "{said}");
    for part in ["gpufleet.v1.tasks.default.", "queue kind = classic", "expects quorum", "--queue-kind"] {
        assert!(said.contains(part), "{part:?} is missing: {said}");
    }
}

/// Classic queues do not count deliveries, so a worker requeues a job as a copy whose header has the number of the
/// attempt.
#[tokio::test(flavor = "multi_thread")]
async fn every_attempt_on_a_classic_queue_has_its_own_number() {
    let ground = Ground::shared_with("classic-again", QueueKind::Classic).await;
    let fleet = ground.client().await;
    let mut handle = fleet.submit(busy::until_released()).await.unwrap();
    for attempt in 1..=2 {
        let worker = ground.worker().await;
        ground
            .poll_job("running", handle.id(), |job| job.state == JobState::Running && job.attempt == Some(attempt))
            .await;
        worker.kill9().await.unwrap();
    }
    let _last = ground.worker().await;
    ground.release_jobs();
    let result = handle.wait(WAIT).await.unwrap();
    assert_eq!(result.attempt, 3);
    let numbers: Vec<u32> = ground.final_job(handle.id()).await.attempts.iter().map(|a| a.attempt).collect();
    assert_eq!(numbers, [1, 2, 3]);
    ground.check_history(1).await;
}

/// Submissions are refused until the worker has declared the deleted queues again.
#[tokio::test(flavor = "multi_thread")]
async fn a_producer_continues_once_a_worker_has_redeclared_deleted_queues() {
    let ground = Ground::shared("queue-deleted").await;
    let fleet = ground.client().await;
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
