//! Pools on one worker: each gets its share of the device, and a fault in one does not affect another.

use gpufleet_schema::JobState;
use gpufleet_tests::{Ground, WAIT, busy, kernels};

/// The number of jobs of each pool. There are so many that the first ones, whose run time the scheduler guesses, do not matter.
const JOBS: usize = 120;

#[tokio::test(flavor = "multi_thread")]
async fn pools_with_work_share_the_device_by_weight() {
    let ground = Ground::shared("weights").await;
    ground.declare_pools(&["heavy", "light"]).await;
    let fleet = ground.client().await;
    let mut submitted = Vec::new();
    // All jobs of a pool share a message and wait before the worker starts. So the worker has jobs of both pools from the beginning, even
    // if the broker is slower than the device.
    for pool in ["heavy", "light"] {
        let jobs = (0..JOBS).map(|_| busy::for_millis(20).pool(pool.parse().unwrap()));
        submitted.extend(fleet.submit_many(jobs).await.into_iter().map(|handle| (pool, handle.unwrap())));
    }
    let _worker = ground.worker_with(&["--pool", "heavy:weight=3", "--pool", "light"]).await;
    // Sorted by the worker's order. Replies that arrive together reach this process in any order.
    let mut finished = Vec::new();
    for (pool, mut handle) in submitted {
        handle.wait(WAIT).await.unwrap();
        let job = ground.final_job(handle.id()).await.job;
        finished.push((job.finished_at.unwrap(), pool, job.total_us.unwrap()));
    }
    finished.sort();
    // Only the time while both pools had jobs is compared. Pools share time, not jobs: on a busy machine, one job may take as long as ten
    // others.
    let shared = finished.iter().rposition(|(_, pool, _)| *pool == "heavy").unwrap() + 1;
    let time =
        |wanted| finished[..shared].iter().filter(|(_, pool, _)| *pool == wanted).map(|(_, _, us)| us).sum::<u64>();
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
    let mut steady = fleet.submit(busy::until_released().pool("steady".parse().unwrap())).await.unwrap();
    ground.poll_job("running", steady.id(), |job| job.state == JobState::Running).await;
    let wild = kernels::writes_beyond_its_buffer().pool("wild".parse().unwrap());
    fleet.submit(wild).await.unwrap().wait(WAIT).await.unwrap_err();

    ground.release_jobs();
    let result = steady.wait(WAIT).await.unwrap();
    assert_eq!(result.attempt, 1, "a fault in another process costs no attempt");
    assert!(worker.is_alive());
    ground.check_history(2).await;
}
