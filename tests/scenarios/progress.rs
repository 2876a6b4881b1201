//! The progress of running jobs: published once a second after the first, received by the clients that ask for it, lost without harm.

use std::time::Duration;

use chrono::Utc;
use gpufleet::{Job, ProgressError, ProgressUpdates, schema::Count};
use gpufleet_schema::{FailureCode, PoolName, Printed, Progress, Stage};
use gpufleet_tests::{
    Ground, WAIT, busy,
    kernels::{self, Then, said, says},
};
use tokio::time::timeout;

use crate::confined::{By, Confined};

const COUNTING: &str = include_str!("../../worker/tests/executor/slow.ptx");
const TELLS: &str = include_str!("../harness/ptx/tells.ptx");

/// A job of about ten seconds: ten launches of a second.
fn ten_launches() -> Job {
    busy::for_seconds(1).repeat(10)
}

async fn next(updates: &mut ProgressUpdates) -> Progress {
    let update = timeout(WAIT, updates.next()).await.expect("the worker publishes progress");
    (*update.expect("the client is connected")).clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_job_shows_its_launches_and_a_short_one_shows_nothing() {
    let (ground, _worker, fleet) = Ground::served("progress").await;
    let mut updates = fleet.progress(&PoolName::default()).await.unwrap();
    let short = fleet.submit_many((0..200).map(|_| kernels::doubles(&[1.0]))).await;
    for handle in short {
        handle.unwrap().wait(WAIT).await.unwrap();
    }
    let mut long = fleet.submit(ten_launches()).await.unwrap();
    // Another client that knows the id.
    let stranger = ground.client().await;
    let mut seen_elsewhere = stranger.progress_of(&PoolName::default(), long.id()).await.unwrap();

    let mut last: Option<Progress> = None;
    let is_amid = |count: Count| (1..count.total).contains(&count.done);
    while !last.as_ref().and_then(|last| last.launches).is_some_and(is_amid) {
        let update = next(&mut updates).await;
        assert_eq!((update.job_id, update.attempt, update.stage), (long.id(), 1, Stage::Running), "{update:?}");
        assert_eq!(update.launches.map(|launches| launches.total), Some(10));
        if let Some(last) = &last {
            assert_eq!(update.sequence, last.sequence + 1);
            assert!(update.at_ms - last.at_ms >= 1000, "at most one a second");
            assert!(update.launches.unwrap().done >= last.launches.unwrap().done);
        } else {
            assert_eq!(update.sequence, 0);
            assert!(update.at_ms - update.started_ms >= 1000, "nothing in the first second");
        }
        last = Some(update);
    }
    assert_eq!(next(&mut seen_elsewhere).await.job_id, long.id());
    busy::assert_done(&long.wait(WAIT).await.unwrap().outputs);
    ground.check_history(201).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_kernels_print_comes_in_pieces_that_make_the_whole() {
    let (ground, worker, fleet) = Ground::served("progress-text").await;
    let mut updates = fleet.progress(&PoolName::default()).await.unwrap();
    // More than one message holds.
    let lines = 2_000;
    let mut spinning = fleet.submit(says(7, lines, Then::Spin)).await.unwrap();
    let whole = said(7, lines);
    let mut text = String::new();
    while text.len() < whole.len() {
        let update = next(&mut updates).await;
        if let Some(Printed { offset, text: piece }) = update.printed {
            assert_eq!(offset as usize, text.len());
            text.push_str(&piece);
        }
    }
    assert_eq!(text, whole);
    worker.kill_executor().await;
    let update = next(&mut updates).await;
    assert_eq!(update.job_id, spinning.id());
    fleet.cancel(gpufleet_schema::Selection { jobs: vec![spinning.id()], ..Default::default() }, None).await.unwrap();
    spinning.wait(WAIT).await.unwrap_err();
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_shows_the_inside_of_a_launch_and_a_failure_says_how_far_it_came() {
    let (ground, _worker, fleet) = Ground::served("progress-counter").await;
    let mut updates = fleet.progress(&PoolName::default()).await.unwrap();
    // One launch of many blocks, each of which takes some milliseconds and counts.
    let (blocks, turns) = (100_000, 1_000_000_u32);
    let job = Job::ptx(COUNTING).entry("slow").blocks([blocks]).block([1]).arg_progress(u64::from(blocks)).arg(turns);
    let mut job = fleet.submit(job.time_limit(Duration::from_secs(5))).await.unwrap();
    let mut counter = Count { done: 0, total: 0 };
    while counter.done == 0 {
        counter = next(&mut updates).await.counter.unwrap();
        assert_eq!(counter.total, u64::from(blocks));
    }
    let failure = job.wait(WAIT).await.unwrap_err().failure().unwrap().clone();
    assert_eq!(failure.code, FailureCode::TimeLimit);
    let (_, reached) = failure.message.split_once("; it had finished ").unwrap_or_else(|| panic!("{failure:?}"));
    let (done, rest) = reached.split_once(' ').unwrap();
    assert!(done.parse::<u64>().unwrap() >= counter.done && rest == "of 100000 steps", "{reached}");
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_are_recent_and_a_thousand_followers_cost_the_worker_no_message() {
    let (ground, _worker, fleet) = Ground::served("progress-followers").await;
    ground.follow_progress("follower.", 1_000).await;
    let mut updates = fleet.progress(&PoolName::default()).await.unwrap();
    let milliseconds = 12_000_u64;
    let job = Job::ptx(TELLS).entry("tells").blocks([1]).block([1]).arg_progress(milliseconds).arg(milliseconds);
    let mut job = fleet.submit(job).await.unwrap();
    let mut ages = Vec::new();
    for sequence in 0..10 {
        let update = next(&mut updates).await;
        assert_eq!(update.sequence, sequence, "{update:?}");
        // The kernel counts the milliseconds since it started.
        let counted = update.counter.map_or(0, |counter| counter.done);
        ages.push((Utc::now().timestamp_millis() - update.started_ms).unsigned_abs().saturating_sub(counted));
    }
    job.wait(WAIT).await.unwrap();
    ages.sort_unstable();
    println!("ages in milliseconds: {ages:?}");
    assert!(ages[ages.len() / 2] <= 1_500, "{ages:?}");
    let received = ground.counts_of_followers("follower.").await;
    let [each] = received.as_slice() else { panic!("followers received different messages: {received:?}") };
    assert!((10..=12).contains(each), "one message a second, however many follow: {each}");
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_gets_the_progress_of_its_pools_and_no_others() {
    let confined = Confined::start("progress-rights", By::Functions).await;
    let (team_a, team_b): (PoolName, PoolName) = ("team-a".parse().unwrap(), "team-b".parse().unwrap());
    let (anna, bert) = (confined.fleet("anna").await, confined.fleet("bert").await);
    let refused = |refused: Result<ProgressUpdates, ProgressError>| {
        let error = refused.unwrap_err();
        assert!(matches!(&error, ProgressError::Forbidden { .. }), "{error}");
        assert!(error.to_string().contains("gpufleet permissions"), "{error}");
    };
    let mut own = anna.progress(&team_a).await.unwrap();
    refused(anna.progress(&team_b).await);
    refused(anna.progress_of_pool(&team_a).await);
    let mut job = anna.submit(busy::for_seconds(3).pool(team_a.clone())).await.unwrap();
    refused(bert.progress_of(&team_a, job.id()).await);
    refused(bert.progress(&team_a).await);
    assert_eq!(next(&mut own).await.job_id, job.id(), "refusals leave what was allowed");
    // An operator sees all of it.
    let olga = confined.fleet("olga").await;
    let mut all = olga.progress_of_pool(&team_a).await.unwrap();
    assert_eq!(next(&mut all).await.job_id, job.id());
    job.wait(WAIT).await.unwrap();
    for fleet in [anna, bert, olga] {
        fleet.close().await;
    }
    confined.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_lost_its_connection_asks_again_by_itself() {
    let (ground, _worker) = Ground::with_worker("progress-cut").await;
    let proxy = ground.proxy().await;
    let fleet = gpufleet::Fleet::connect(proxy.url()).await.unwrap();
    let mut updates = fleet.progress(&PoolName::default()).await.unwrap();
    let job = fleet.submit(busy::until_released()).await.unwrap();
    next(&mut updates).await;
    proxy.cut();
    let after_cut = next(&mut updates).await;
    assert_eq!(after_cut.job_id, job.id());
    ground.release_jobs();
    let mut job = job;
    job.wait(WAIT).await.unwrap();
    fleet.close().await;
    ground.check_history(1).await;
}
