//! Temporary failures are retried after a delay, which the history shows. Jobs with permanent failures are
//! dead-lettered with their reason, and can be listed, requeued or discarded. (fault 19)

use gpufleet_schema::{AttemptState, JobId, JobState};
use gpufleet_tests::{Ground, WAIT, busy, kernels, poll_until};

#[tokio::test(flavor = "multi_thread")]
async fn a_suspected_job_is_retried_after_a_delay_that_the_history_shows() {
    let (ground, worker, fleet) = Ground::served("retry-wait").await;
    let mut handle = fleet.submit(busy::until_released()).await.unwrap();
    ground.poll_job("running", handle.id(), |job| job.state == JobState::Running).await;
    worker.kill_executor().await;
    ground.release_jobs();
    busy::assert_done(&handle.wait(WAIT).await.unwrap().outputs);

    let detail = ground.final_job(handle.id()).await;
    let [lost, done] = detail.attempts.as_slice() else { panic!("{:?}", detail.attempts) };
    assert_eq!((lost.state, done.state), (AttemptState::Lost, AttemptState::Succeeded));
    let due = lost.retry_at.expect("the lost attempt has the time of the retry");
    assert_eq!((due - lost.finished_at.unwrap()).num_seconds(), 1);
    // All processes use the clock of this machine, so the retry can't start early.
    assert!((done.started_at.unwrap() - due).num_milliseconds() > -50, "{detail:?}");
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_listed_shown_replayed_and_discarded() {
    let (ground, worker, fleet) = Ground::served("the-dead").await;
    let mut handles = Vec::new();
    for _ in 0..2 {
        let mut handle = fleet.submit(kernels::endless().attempts_max(1)).await.unwrap();
        ground.poll_job("running", handle.id(), |job| job.state == JobState::Running).await;
        worker.kill_executor().await;
        handle.wait(WAIT).await.unwrap_err();
        handles.push(handle);
    }
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = [0, 1].map(|index| handles[index].id().to_string());
    let list = ground.gpufleet(folder.path(), &["dead", "list"]).await;
    assert!(list.stdout.contains(&first) && list.stdout.contains("default.normal"), "{}{}", list.stdout, list.stderr);
    // Showing a letter does not remove it.
    let json = ground.gpufleet(folder.path(), &["dead", "show", &first, "-o", "json"]).await.json();
    assert_eq!(json["jobs"][0], first.as_str());
    assert!(json["reason"].as_str().unwrap().contains("1 attempt that lost its executor"), "{json}");
    assert_eq!(json["body"][0]["job_id"], first.as_str());

    let again = ground.gpufleet(folder.path(), &["retry", &first]).await.ok();
    let new = again.stdout.trim().rsplit(' ').next().unwrap();
    ground.gpufleet(folder.path(), &["cancel", new]).await.ok();
    let detail = ground.final_job(new.parse().unwrap()).await;
    assert_eq!(detail.job.state, JobState::Cancelled, "the replayed job is cancelled like any other");
    assert_eq!(detail.job.labels["replay-of"], first);
    assert_eq!(ground.final_job(handles[0].id()).await.job.state, JobState::Dead, "an outcome never changes");

    let discarded = ground.gpufleet(folder.path(), &["dead", "discard", "--all"]).await;
    assert_eq!(discarded.stdout, format!("discarded {second}\n"), "{}", discarded.stderr);
    poll_until("nothing left", async || {
        let list = ground.gpufleet(folder.path(), &["dead", "list", "-o", "json"]).await;
        list.stdout.trim() == "[]"
    })
    .await;
    let none = ground.gpufleet(folder.path(), &["dead", "replay", &second]).await;
    assert_eq!(none.code, 9, "{}", none.stderr);
    ground.check_history(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_job_is_rerun_and_any_other_one_is_explained() {
    let (ground, worker, fleet) = Ground::served("rerun").await;
    let mut dead = fleet.submit(kernels::endless().attempts_max(1)).await.unwrap();
    ground.poll_job("running", dead.id(), |job| job.state == JobState::Running).await;
    worker.kill_executor().await;
    dead.wait(WAIT).await.unwrap_err();
    let mut succeeded = fleet.submit(kernels::doubles(&[1.0])).await.unwrap();
    succeeded.wait(WAIT).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [dead, succeeded] = [&dead, &succeeded].map(|handle| handle.id());
    let rerun = async |id: JobId| ground.gpufleet(folder.path(), &["rerun", &id.to_string()]).await;
    for id in [dead, succeeded] {
        ground.final_job(id).await;
    }

    let again = rerun(dead).await.ok();
    let new = again.stdout.trim().rsplit(' ').next().unwrap();
    ground.gpufleet(folder.path(), &["cancel", new]).await.ok();
    assert_eq!(ground.final_job(new.parse().unwrap()).await.job.labels["replay-of"], dead.to_string());

    // The dead-letter queue no longer has the first job, and never had the other one.
    for id in [dead, succeeded] {
        let refused = rerun(id).await;
        assert_eq!(refused.code, 3, "{}", refused.stderr);
        assert!(refused.stderr.contains("does not keep the program"), "{}", refused.stderr);
    }
    ground.check_history(3).await;
}
