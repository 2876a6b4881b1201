//! A worker that is killed during a job loses nothing: the broker redelivers the job to another worker, the producer
//! gets one reply, and the ledger has both attempts and one outcome. (faults 1 and 2)

use gpufleet_schema::{AttemptState, JobState};
use gpufleet_tests::{Ground, WAIT, busy};

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_worker_is_killed_runs_on_another() {
    let (ground, first) = Ground::with_worker("worker-lost").await;
    let fleet = ground.client().await;
    let mut handle = fleet.submit(busy::until_released()).await.unwrap();
    ground.poll_job("running on the first worker", handle.id(), |job| job.state == JobState::Running).await;
    first.kill9().await.unwrap();
    let second = ground.worker().await;
    ground.release_jobs();

    let result = handle.wait(WAIT).await.unwrap();
    assert_eq!(result.ran_on.unwrap().worker.as_str(), second.name());
    assert_eq!(result.attempt, 2);
    busy::assert_done(&result.outputs);

    let detail = ground.final_job(handle.id()).await;
    assert_eq!(detail.job.state, JobState::Succeeded);
    let attempts: Vec<_> = detail.attempts.iter().map(|a| (a.attempt, a.worker.as_str(), a.state)).collect();
    // No worker reported the end of the first attempt.
    assert_eq!(attempts, [(1, first.name(), AttemptState::Running), (2, second.name(), AttemptState::Succeeded)]);
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_executor_outlives_its_killed_worker() {
    let (ground, worker, fleet) = Ground::served("orphans").await;
    let handle = fleet.submit(busy::for_seconds(60)).await.unwrap();
    ground.poll_job("running", handle.id(), |job| job.state == JobState::Running).await;
    let executors = worker.executors();
    assert!(!executors.is_empty(), "the worker has an executor for the job");
    worker.kill9().await.unwrap();
    gpufleet_tests::poll_until("executors gone", || async {
        !executors.iter().any(|pid| gpufleet_tests::is_alive(*pid))
    })
    .await;
}
