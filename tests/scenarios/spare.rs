//! When an executor is killed, a spare executor takes over at once, so the other jobs are delayed little. (fault 37)

use std::{
    fs,
    time::{Duration, Instant},
};

use gpufleet_schema::{AttemptState, FailureCode};
use gpufleet_tests::{Ground, TestWorker, WAIT, busy, kernels, poll_until, signal};

/// The deadline for a takeover: far more time than a spare executor needs, even on a machine that runs all scenarios at
/// once.
const TAKEOVER_MAX: Duration = Duration::from_secs(20);
/// The log settings with which a worker logs when its spare executor is ready.
const TALKATIVE: [(&str, &str); 1] = [("GPUFLEET_LOG", "gpufleet_worker=debug")];

#[tokio::test(flavor = "multi_thread")]
async fn a_spare_takes_over_at_once_and_the_neighbours_lose_no_attempt() {
    let ground = Ground::shared("spare").await;
    let worker = ground.worker_in(&["--spare-executors", "1"], &TALKATIVE).await;
    ground.poll_log("the spare", &worker, "spare executor ready").await;
    let fleet = ground.client().await;
    let mut neighbour = fleet.submit(busy::until_released()).await.unwrap();
    let mut endless = fleet.submit(kernels::endless().time_limit(Duration::from_secs(1))).await.unwrap();

    let error = endless.wait(WAIT).await.unwrap_err();
    let killed = Instant::now();
    assert_eq!(error.failure().unwrap().code, FailureCode::TimeLimit);
    let mut next = fleet.submit(kernels::doubles(&[1.0, 2.0])).await.unwrap();
    assert_eq!(next.wait(WAIT).await.unwrap().attempt, 1);
    let gap = killed.elapsed();
    assert!(gap < TAKEOVER_MAX, "{gap:?}");
    ground.release_jobs();
    busy::assert_done(&neighbour.wait(WAIT).await.unwrap().outputs);

    // The log shows that no executor was started before the takeover.
    ground.poll_log("the takeover", &worker, "another took over").await;
    let log = fs::read_to_string(worker.process().log()).unwrap();
    assert!(!log.contains("executor started"), "{log}");
    println!("from the reply of the killed job to the next result: {gap:?}");
    log.lines().filter(|line| line.contains("took over")).for_each(|line| println!("{line}"));

    let lost = ground.final_job(neighbour.id()).await;
    let states: Vec<_> = lost.attempts.iter().map(|attempt| attempt.state).collect();
    assert_eq!(states, [AttemptState::Lost, AttemptState::Succeeded]);
    assert!(lost.attempts[0].retry_at.is_none(), "a job that is not the suspect is retried without delay");
    poll_until("another spare", async || worker.executors().len() == 2).await;
    ground.check_history(3).await;
}

/// Returns the process id of the current spare executor, from the worker's log.
fn spare_of(worker: &TestWorker) -> u32 {
    let log = fs::read_to_string(worker.process().log()).unwrap();
    let line = log.lines().rfind(|line| line.contains("spare executor ready")).unwrap();
    let (_, pid) = line.split_once("pid=").unwrap();
    pid.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_spare_costs_no_job_an_attempt() {
    // To the worker, a hanging spare looks like one whose death it has not noticed yet.
    for dies in [true, false] {
        let ground = Ground::shared("dead-spare").await;
        let arguments = ["--spare-executors", "1", "--jobs-per-device", "1"];
        let worker = ground.worker_in(&arguments, &TALKATIVE).await;
        ground.poll_log("the spare", &worker, "spare executor ready").await;
        let spare = spare_of(&worker);
        signal(spare, libc::SIGSTOP);
        let fleet = ground.client().await;
        let mut endless = fleet.submit(kernels::endless().time_limit(Duration::from_secs(1))).await.unwrap();
        let mut next = fleet.submit(kernels::doubles(&[1.0])).await.unwrap();
        assert_eq!(endless.wait(WAIT).await.unwrap_err().failure().unwrap().code, FailureCode::TimeLimit);
        if dies {
            signal(spare, libc::SIGKILL);
        }
        next.wait(WAIT).await.unwrap();
        if !dies {
            ground.poll_log("the dead spare", &worker, "spare executor does not answer").await;
            ground.poll_log("a new executor", &worker, "executor started").await;
        }
        // The job may have arrived while there was no executor. That costs no attempt.
        let ran = ground.final_job(next.id()).await;
        assert!(ran.attempts.iter().all(|attempt| attempt.retry_at.is_none()), "a loss was counted: {ran:?}");
        poll_until("another spare", async || worker.executors().len() == 2).await;
        ground.check_history(2).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_spare_the_worker_starts_an_executor() {
    let ground = Ground::shared("no-spare").await;
    let worker = ground.worker_with(&["--spare-executors", "0"]).await;
    assert_eq!(worker.executors().len(), 1);
    let fleet = ground.client().await;
    let endless = kernels::endless().time_limit(Duration::from_millis(200));
    fleet.submit(endless).await.unwrap().wait(WAIT).await.unwrap_err();
    fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    ground.poll_log("its start", &worker, "executor started").await;
    ground.check_history(2).await;
}
