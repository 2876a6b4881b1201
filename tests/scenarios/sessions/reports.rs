//! What pools, `why` and the ledger say of sessions that wait or are open.

use std::time::{Duration, Instant};

use gpufleet::schema::{AttemptState, JobState};
use gpufleet_ledger::{HistoryFilter, JobDetail};
use gpufleet_local::process::Signal;
use gpufleet_tests::{Ground, poll_until};
use serde_json::Value;

use super::{LEASE, Run, TAKES_SESSIONS, failure, sessions, with_sessions};

/// Returns what `gpufleet pools` says of the pool `gpu`, as JSON and as its line in the table.
async fn pool_gpu(ground: &Ground) -> (Value, String) {
    let home = tempfile::tempdir().unwrap();
    let pools = ground.gpufleet(home.path(), &["pools", "-o", "json"]).await.json();
    let pool = pools.as_array().unwrap().iter().find(|pool| pool["pool"] == "gpu").cloned().unwrap_or_default();
    let table = ground.gpufleet(home.path(), &["pools"]).await.ok().stdout;
    (pool, table.lines().find(|line| line.starts_with("gpu ")).unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_show_the_open_sessions_and_their_memory() {
    let (ground, _worker) = with_sessions("session-pools").await;
    let session = Run::begun(&ground, "--quiet", "hold 1048576").await;
    poll_until("a heartbeat counts the session", async || pool_gpu(&ground).await.0["sessions_open"] == 1).await;
    let (pool, line) = pool_gpu(&ground).await;
    assert_eq!((&pool["sessions_max"], &pool["session_bytes"]), (&Value::from(2), &Value::from(LEASE)), "{pool}");
    assert!(pool["session_bytes_max"].as_u64() > Some(1 << 30), "{pool}");
    assert!(line.contains("1 of 2, 64.0 MiB of 1."), "{line}");
    assert_eq!(session.ended().await.code, 0);
    poll_until("a heartbeat counts no session", async || pool_gpu(&ground).await.0["sessions_open"] == 0).await;
    assert_eq!(pool_gpu(&ground).await.0["session_bytes"], 0);
}

/// Waits until `gpufleet why` names this reason for the only session that waits. Returns the text.
async fn waits_for(ground: &Ground, wanted: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let mut text = String::new();
    poll_until(&format!("the reason is {wanted}"), async || {
        let queued = HistoryFilter { states: vec![JobState::Queued], ..HistoryFilter::default() };
        let [session] = &ground.jobs(queued).await.unwrap()[..] else { return false };
        let printed = ground.gpufleet(home.path(), &["why", &session.job_id.to_string(), "-o", "json"]).await.json();
        println!("{printed}");
        text = printed["reasons"][0]["text"].as_str().unwrap_or_default().to_owned();
        printed["reasons"][0]["reason"] == wanted
    })
    .await;
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn why_says_what_a_session_waits_for() {
    let (ground, worker) = with_sessions("session-why").await;
    let first = Run::begun(&ground, "--quiet --memory 1GiB", "hold 1048576").await;
    let large = Run::start(&ground, "--quiet --memory 1GiB", "double");
    let text = waits_for(&ground, "memory").await;
    assert!(text.contains("it asks for 1.00 GiB; open sessions and running jobs leave at most "), "{text}");
    assert_eq!(first.ended().await.code, 0);
    assert_eq!(large.ended().await.code, 0);

    let holding = [Run::begun(&ground, "--quiet", "hold 1").await, Run::begun(&ground, "--quiet", "hold 1").await];
    let next = Run::start(&ground, "--quiet", "double");
    let text = waits_for(&ground, "sessions_open").await;
    assert!(text.contains("2 of 2 sessions of pool gpu are open, and 1 session waits in its queue; "), "{text}");
    for run in holding {
        assert_eq!(run.ended().await.code, 0);
    }
    assert_eq!(next.ended().await.code, 0);

    assert_eq!(worker.stop(Signal::Terminate).await, Some(0));
    let alone = Run::start(&ground, "--quiet", "double");
    let text = waits_for(&ground, "no_consumer").await;
    assert!(text.contains("no worker serves pool gpu, and 1 session waits in its queue; to start one"), "{text}");
    let _without_sessions = ground.worker_with(&["--pool", "gpu"]).await;
    let text = waits_for(&ground, "no_sessions").await;
    assert!(text.contains("gpufleet-worker run --pool gpu:sessions=1"), "{text}");
    let _with_sessions = ground.worker_with(&TAKES_SESSIONS).await;
    assert_eq!(alone.ended().await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_numbers_of_a_session_are_known_while_it_is_open_and_survive_its_worker() {
    let (ground, worker) = with_sessions("session-progress").await;
    let run = Run::begun(&ground, "--quiet", "endless").await;
    let since = Instant::now();
    poll_until("the session is in the ledger", async || sessions(&ground).await.len() == 1).await;
    let job_id = sessions(&ground).await[0];
    let reported = |job: &JobDetail| job.attempts[0].session.as_ref().map_or(0, |used| used.busy_us);
    ground.poll_attempts("a report of the open session", job_id, |job| reported(job) > 0).await;
    assert!(since.elapsed() > Duration::from_secs(5), "the first report comes after ten seconds");
    let home = tempfile::tempdir().unwrap();
    let shown = ground.gpufleet(home.path(), &["show", &job_id.to_string()]).await.ok();
    assert!(shown.stdout.contains("  session  as last reported · GPU busy "), "{}", shown.stdout);
    worker.kill9().await.unwrap();
    let _worker = ground.worker_with(&TAKES_SESSIONS).await;
    assert_eq!(run.ended().await.code, 10);
    let job = ground.final_job(job_id).await;
    assert_eq!(failure(&job).0, "executor_lost", "{job:?}");
    let [first, second] = job.attempts.as_slice() else { panic!("{job:?}") };
    assert_eq!((first.state, second.state, &second.session), (AttemptState::Running, AttemptState::Failed, &None));
    assert!(reported(&job) > 0, "{job:?}");
    let used = || async {
        let home = tempfile::tempdir().unwrap();
        let usage = ground.gpufleet(home.path(), &["usage", "--by", "kernel", "-o", "json"]).await.json();
        let rows = usage["rows"].as_array().unwrap().clone();
        rows.iter().any(|row| row["charged_us"].as_u64() >= Some(reported(&job)))
    };
    poll_until("its device time is in the statistics", used).await;
}
