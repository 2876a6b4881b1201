//! A broker that crashes during a thousand jobs and restarts loses no confirmed job: every one is
//! answered and has exactly one final outcome in the ledger. (fault 8)

use futures::future::join_all;
use gpufleet_schema::JobState;
use gpufleet_tests::{Ground, WAIT, busy};

const JOBS: usize = 1000;
/// Eight run at a time: together they take seconds, and the crash comes after the first of them.
const JOB_MILLIS: u64 = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_jobs_in_flight_survive_a_crash_of_the_broker() {
    let ground = Ground::breakable("broker-lost").await;
    let _first = ground.worker().await;
    let _second = ground.worker().await;
    let fleet = ground.client().await;

    let submissions = join_all((0..JOBS).map(|_| fleet.submit(busy::for_millis(JOB_MILLIS))));
    let crash = async {
        ground.poll_count("some answered, most in flight", JobState::Succeeded, 20).await;
        assert!(fleet.counts().replies < JOBS as u64 / 2, "the crash comes in the middle");
        ground.crash_broker().await;
    };
    let (handles, ()) = tokio::join!(submissions, crash);

    // A submission whose confirmation was lost is published again under the same id, so every one of them returns.
    let mut handles: Vec<_> = handles.into_iter().map(|handle| handle.unwrap()).collect();
    let results = join_all(handles.iter_mut().map(|handle| handle.wait(WAIT))).await;
    for (index, result) in results.into_iter().enumerate() {
        busy::assert_done(&result.unwrap_or_else(|error| panic!("job {index}: {error}")).outputs);
    }
    ground.check_history(JOBS).await;
}
