//! Sessions whose worker, broker or client goes away.

use std::time::{Duration, Instant};

use gpufleet::{
    Fleet, Job,
    schema::{
        JobState,
        topology::{UNCLAIMED_QUEUE, reply_queue},
    },
};
use gpufleet_local::process::Signal;
use gpufleet_tests::{Ground, Proxy, Silence, TestWorker, poll_until, signal};

use super::{LEASE, Run, STATES, TAKES_SESSIONS, assert_free, failure, gates, only_session, sessions, with_sessions};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_killed_takes_its_session_with_it_and_another_tells_the_ledger() {
    let (ground, mut worker) = with_sessions("session-worker").await;
    for program in STATES {
        let run = Run::begun(&ground, "--quiet", program).await;
        worker.kill9().await.unwrap();
        worker = ground.worker_with(&TAKES_SESSIONS).await;
        let ended = run.ended().await;
        assert_eq!(ended.code, 10, "{program}: {ended:?}");
    }
    poll_until("all sessions", async || sessions(&ground).await.len() == STATES.len()).await;
    for session in sessions(&ground).await {
        assert_eq!(failure(&ground.final_job(session).await).0, "executor_lost");
    }
    assert_free(&ground, &worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_outlives_a_restart_of_the_broker() {
    let ground = Ground::breakable("session-broker").await;
    let worker = ground.worker_with(&TAKES_SESSIONS).await;
    let mut idle = Run::begun(&ground, "--quiet", "hold 1048576").await;
    let working = Run::begun(&ground, "--quiet", "copies").await;
    ground.services().broker().kill9().await.unwrap();
    ground.services().broker().restart().await.unwrap();
    idle.goes_on().await;
    let ended = idle.ended().await;
    assert_eq!(ended.code, 0, "{ended:?}");
    signal(working.program(), libc::SIGKILL);
    assert_eq!(working.ended().await.code, 128 + 9);
    poll_until("both sessions", async || sessions(&ground).await.len() == 2).await;
    let mut states = Vec::new();
    for session in sessions(&ground).await {
        states.push(ground.final_job(session).await.job.state);
    }
    assert!(states.contains(&JobState::Succeeded) && states.contains(&JobState::Failed), "{states:?}");
    assert_free(&ground, &worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offer_that_no_client_takes_does_not_stay() {
    let (ground, worker) = with_sessions("session-unclaimed").await;
    assert_eq!(worker.stop(Signal::Terminate).await, Some(0));
    let request = || Job::session("test", LEASE).pool("gpu".parse().unwrap());
    // One client has closed its reply queue. The other one has died, so its queue is there for ten minutes.
    let client = async || Fleet::builder().connect(&ground.endpoints().amqp_url).await.unwrap();
    let [left, dead] = [client().await, client().await];
    let of_left = left.open_session(request()).await.unwrap().id();
    let of_dead = dead.open_session(request()).await.unwrap().id();
    let queue = reply_queue(dead.client());
    left.close().await;
    drop(dead);
    let since = Instant::now();
    let _worker = ground.worker_with(&TAKES_SESSIONS).await;
    let job = ground.final_job(of_left).await;
    assert_eq!(failure(&job), ("client_lost", "the client that requested the session has closed its reply queue"));
    assert!(since.elapsed() < Duration::from_secs(30), "no offer waits for it");
    poll_until("only the reply is kept", async || ground.messages_in(UNCLAIMED_QUEUE).await == 1).await;
    poll_until("an offer waits", async || ground.messages_in(&queue).await == 1).await;
    let job = ground.final_job(of_dead).await;
    assert_eq!(failure(&job).0, "client_lost");
    poll_until("the offer has gone and the reply is there", async || {
        ground.messages_in(&queue).await == 1 && ground.messages_in(UNCLAIMED_QUEUE).await == 1
    })
    .await;
}

/// Starts a worker behind a proxy with an open session, and a second one.
async fn cut_off(ground: &Ground, program: &str) -> (Proxy, [TestWorker; 2], Run) {
    let proxy = ground.proxy().await;
    let first = ground.worker_with(&[&TAKES_SESSIONS[..], &["--amqp-url", proxy.url()]].concat()).await;
    let run = Run::begun(ground, "--quiet", program).await;
    poll_until("the session is in the ledger", async || sessions(ground).await.len() == 1).await;
    (proxy, [first, ground.worker_with(&TAKES_SESSIONS).await], run)
}

/// What a worker logs when the client of a redelivered session has its session elsewhere.
const OFFERED_AGAIN: &str = "session may be open on another worker, offered again later";

/// Asserts that the session has succeeded in its first attempt, on its first worker, and that no other attempt is known.
async fn assert_ran_once(ground: &Ground, first: &TestWorker) {
    let job = only_session(ground).await;
    let [attempt] = job.attempts.as_slice() else { panic!("{job:?}") };
    assert_eq!((job.job.state, attempt.attempt, attempt.worker.as_str()), (JobState::Succeeded, 1, first.name()));
    assert!(attempt.session.as_ref().is_some_and(|used| used.calls > 5), "{attempt:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_worker_loses_the_broker_goes_on_although_another_worker_gets_its_message() {
    let ground = Ground::shared("session-cut").await;
    let (proxy, [first, second], mut run) = cut_off(&ground, "hold 1048576").await;
    proxy.cut();
    ground.poll_log("the second worker has asked the client", &second, OFFERED_AGAIN).await;
    poll_until("it holds nothing for the session", async || gates(&second).is_empty()).await;
    assert_eq!(gates(&first).len(), 1);
    run.goes_on().await;
    let ended = run.ended().await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_ran_once(&ground, &first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outcome_of_a_session_that_ends_while_its_worker_has_no_broker_is_its_own() {
    let ground = Ground::shared("session-silent").await;
    let (proxy, [first, second], mut run) = cut_off(&ground, "hold 1048576").await;
    proxy.silence(Silence::All);
    ground.poll_log("the second worker has asked the client", &second, OFFERED_AGAIN).await;
    run.goes_on().await;
    let ended = run.ended().await;
    assert_eq!(ended.code, 0, "{ended:?}");
    poll_until("the second worker has found no client", async || second.count_in_log(OFFERED_AGAIN) == 2).await;
    proxy.clear();
    assert_ran_once(&ground, &first).await;
}
