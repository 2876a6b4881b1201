//! Pools on one worker: each gets its share of the device, and a fault in one does not affect another.

use std::sync::{Arc, Mutex};

use gpufleet_schema::JobState;
use gpufleet_tests::{Ground, WAIT, busy, kernels};
use tokio::task::JoinSet;

/// Jobs of each pool. There are enough that the first ones don't matter, whose run time the scheduler guesses.
const JOBS: usize = 60;

#[tokio::test(flavor = "multi_thread")]
async fn pools_with_work_share_the_device_by_weight() {
    let ground = Ground::shared("weights").await;
    ground.declare_pools(&["heavy", "light"]).await;
    let fleet = ground.client().await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waits = JoinSet::new();
    // All jobs of a pool share a message and wait before the worker starts. So the worker has jobs of both pools from the
    // beginning, even if the broker is slower than the device.
    for pool in ["heavy", "light"] {
        let jobs = (0..JOBS).map(|_| busy::for_millis(20).pool(pool.parse().unwrap()));
        for handle in fleet.submit_many(jobs).await {
            let (mut handle, order) = (handle.unwrap(), Arc::clone(&order));
            waits.spawn(async move {
                let result = handle.wait(WAIT).await.unwrap();
                order.lock().unwrap().push((pool, result.timings.total_us));
            });
        }
    }
    let _worker = ground.worker_with(&["--pool", "heavy:weight=3", "--pool", "light"]).await;
    waits.join_all().await;
    let finished = std::mem::take(&mut *order.lock().unwrap());
    // Only the time while both pools had jobs counts. Pools share time, not jobs: on a busy machine one job may take as
    // long as ten.
    let shared = finished.iter().rposition(|(pool, _)| *pool == "heavy").unwrap() + 1;
    let time = |wanted| finished[..shared].iter().filter(|(pool, _)| *pool == wanted).map(|(_, us)| us).sum::<u64>();
    let (heavy, light) = (time("heavy"), time("light"));
    let share = heavy as f64 / (heavy + light) as f64;
    assert!(
        (0.65..=0.85).contains(&share),
        "the pool with three times the weight had {heavy} us, the other {light} us"
    );
    ground.check_history(2 * JOBS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_in_one_pool_leaves_the_jobs_of_another_running() {
    let ground = Ground::shared("pool-faults").await;
    let worker = ground.worker_with(&["--pool", "steady", "--pool", "wild"]).await;
    let fleet = ground.client().await;
    let mut steady = fleet.submit(busy::for_all_to_see().pool("steady".parse().unwrap())).await.unwrap();
    ground.poll_job("running", steady.id(), |job| job.state == JobState::Running).await;
    let wild = kernels::writes_beyond_its_buffer().pool("wild".parse().unwrap());
    fleet.submit(wild).await.unwrap().wait(WAIT).await.unwrap_err();

    let result = steady.wait(WAIT).await.unwrap();
    assert_eq!(result.attempt, 1, "a fault in another process costs no attempt");
    assert!(worker.is_alive());
    ground.check_history(2).await;
}
