//! A broker that crashes in the middle of a thousand jobs and comes back loses none that it had confirmed: every one is
//! answered and has exactly one final outcome in the ledger. (fault 8)

use futures::future::join_all;
use gpufleet::Job;
use gpufleet_schema::JobState;
use gpufleet_tests::{Ground, WAIT};

const JOBS: usize = 1000;

fn job(index: usize) -> Job {
    Job::catalog("vector_add")
        .input("a", &[index as f32; 64])
        .input("b", &[1.0_f32; 64])
        .label("index", index.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_jobs_in_flight_survive_a_crash_of_the_broker() {
    let ground = Ground::with_own_services("broker-lost").await;
    let _first = ground.worker().await;
    let _second = ground.worker().await;
    let fleet = ground.client().await;

    let submissions = join_all((0..JOBS).map(|index| fleet.submit(job(index))));
    let crash = async {
        ground.poll_count("some answered, most in flight", JobState::Succeeded, 50).await;
        ground.services().broker().kill9().await.unwrap();
        ground.services().broker().restart().await.unwrap();
    };
    let (handles, ()) = tokio::join!(submissions, crash);

    // A submission whose confirmation was lost is published again under the same id, so every one of them returns.
    let mut handles: Vec<_> = handles.into_iter().map(|handle| handle.unwrap()).collect();
    let results = join_all(handles.iter_mut().map(|handle| handle.wait(WAIT))).await;
    for (index, result) in results.into_iter().enumerate() {
        let sum = result.unwrap_or_else(|error| panic!("job {index}: {error}")).output::<f32>("sum").unwrap();
        assert_eq!(sum, [index as f32 + 1.0; 64]);
    }
    ground.check_history(JOBS).await;
}
