//! A broker that crashes during a thousand jobs and restarts loses no confirmed job: every one is
//! answered and has exactly one final outcome in the ledger. (fault 8)

use futures::future::join_all;
use gpufleet_tests::{Ground, WAIT, busy, poll_until};

const JOBS: usize = 1000;
/// The duration of a job. Eight jobs run at a time, so all of them take seconds, and the broker crashes after the first
/// ones.
const JOB_MILLIS: u64 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_jobs_in_flight_survive_a_crash_of_the_broker() {
    let ground = Ground::breakable("broker-lost").await;
    let _first = ground.worker().await;
    let _second = ground.worker().await;
    let fleet = ground.client().await;

    let submissions = join_all((0..JOBS).map(|_| fleet.submit(busy::for_millis(JOB_MILLIS))));
    let crash = async {
        poll_until("the first jobs are answered", async || fleet.counts().replies >= 20).await;
        assert!(fleet.counts().replies < JOBS as u64 / 2, "most jobs are in flight");
        ground.crash_broker().await;
    };
    let (handles, ()) = tokio::join!(submissions, crash);

    // If a confirm was lost, the client publishes the job again under its id, so every submission returns a handle.
    let mut handles: Vec<_> = handles.into_iter().map(|handle| handle.unwrap()).collect();
    let results = join_all(handles.iter_mut().map(|handle| handle.wait(WAIT))).await;
    for (index, result) in results.into_iter().enumerate() {
        busy::assert_done(&result.unwrap_or_else(|error| panic!("job {index}: {error}")).outputs);
    }
    ground.check_history(JOBS).await;
}
