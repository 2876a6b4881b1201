//! Two workers on one queue share its jobs, and each job runs once. (fault 45)

use std::collections::BTreeMap;

use gpufleet_tests::{Ground, WAIT, busy};

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_share_a_queue() {
    let ground = Ground::shared("two-workers").await;
    let _first = ground.worker_with(&["--prefetch", "4"]).await;
    let _second = ground.worker_with(&["--prefetch", "4"]).await;
    let fleet = ground.client().await;
    let mut handles = Vec::new();
    for _ in 0..40 {
        handles.push(fleet.submit(busy::for_millis(500)).await.unwrap());
    }
    let mut shares: BTreeMap<String, usize> = BTreeMap::new();
    for handle in &mut handles {
        let result = handle.wait(WAIT).await.unwrap();
        assert_eq!(result.attempt, 1);
        *shares.entry(result.ran_on.unwrap().worker.to_string()).or_default() += 1;
    }
    assert_eq!(shares.len(), 2, "{shares:?}");
    assert!(shares.values().all(|share| *share >= 8), "each worker runs a fifth or more: {shares:?}");
    ground.check_history(40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_served_by_its_own_workers_only() {
    let ground = Ground::shared("pools").await;
    let _default = ground.worker().await;
    let team = ground.worker_with(&["--pool", "team-a"]).await;
    let fleet = ground.client().await;
    let pool = "team-a".parse().unwrap();
    let mut handle = fleet.submit(busy::for_millis(1).pool(pool)).await.unwrap();
    assert_eq!(handle.wait(WAIT).await.unwrap().ran_on.unwrap().worker.as_str(), team.name());
    let detail = ground.final_job(handle.id()).await;
    assert_eq!(detail.job.pool.as_deref(), Some("team-a"));
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_long_jobs_spreads_to_a_worker_that_becomes_idle() {
    const JOBS: usize = 32;
    let (ground, first) = Ground::with_worker("spreading").await;
    let fleet = ground.client().await;
    let handles = fleet.submit_many((0..JOBS).map(|_| busy::for_seconds(1))).await;
    let mut handles = handles.into_iter().map(Result::unwrap);
    // When the first job has run, the list is on this worker.
    busy::assert_done(&handles.next().unwrap().wait(WAIT).await.unwrap().outputs);
    // The worker's jobs are suspended while the second worker starts, however long that takes.
    first.pause_executors();
    let second = ground.worker().await;
    first.resume_executors();
    let mut moved = 0;
    for mut handle in handles {
        let result = handle.wait(WAIT).await.unwrap();
        busy::assert_done(&result.outputs);
        let is_there = result.ran_on.unwrap().worker.as_str() == second.name();
        assert!(!is_there || result.attempt > 1, "it came from the list");
        moved += usize::from(is_there);
    }
    assert!(moved >= 4, "the second worker ran {moved} of {JOBS} jobs");
    ground.check_history(JOBS).await;
}
