//! In a pool with affinity, jobs with the same largest input run on the same worker while it has room. They run on
//! another worker if it has none or is gone.

use std::collections::HashMap;

use futures::future::join_all;
use gpufleet::{Array, Fleet, FleetBuilder, Job, JobResult, StoredArray, SubmitError};
use gpufleet_schema::PoolName;
use gpufleet_tests::{Ground, METRICS, Producer, TestWorker, WAIT, busy, kernels, poll_until};
use tempfile::TempDir;

/// The number of floats in 1 MiB.
const FLOATS: usize = 1 << 18;
const INPUTS: usize = 16;
const AFFINITY: [&str; 4] = ["--pool", "hot:affinity", METRICS[0], METRICS[1]];

struct Scene {
    ground: Ground,
    workers: Vec<TestWorker>,
    fleet: Producer,
    inputs: Vec<StoredArray>,
    blobs: TempDir,
}

impl Scene {
    /// Starts two workers with affinity.
    async fn new(label: &str, arguments: &[&str]) -> Self {
        let blobs = tempfile::tempdir().unwrap();
        let ground = Ground::with_environment(label, &[("GPUFLEET_BLOBS", blobs.path().to_str().unwrap())]).await;
        let arguments = [&AFFINITY[..], arguments].concat();
        let workers = vec![ground.worker_with(&arguments).await, ground.worker_with(&arguments).await];
        let fleet = ground.client_with(client(&blobs).affinity(true)).await;
        let stored = (0..INPUTS).map(|first| fleet.store(Array::from_slice(&vec![first as f32; FLOATS])));
        let inputs = join_all(stored).await.into_iter().map(Result::unwrap).collect();
        Self { ground, workers, fleet, inputs, blobs }
    }

    async fn run(&self, fleet: &Producer, input: usize) -> JobResult {
        let result = fleet.submit(doubles_of(&self.inputs[input])).await.unwrap().wait(WAIT).await.unwrap();
        assert_eq!(result.output::<f32>("y").unwrap(), [2.0 * input as f32]);
        result
    }

    /// Returns how many inputs all workers together have read from the store.
    async fn brought(&self) -> f64 {
        let metrics = join_all(self.workers.iter().map(|worker| worker.metrics())).await;
        metrics.iter().map(|metrics| metrics.sum("gpufleet_inputs_total", &[("source", "store")])).sum()
    }
}

fn client(blobs: &TempDir) -> FleetBuilder {
    Fleet::builder().blobs(blobs.path())
}

fn pool() -> PoolName {
    "hot".parse().unwrap()
}

fn doubles_of(x: &StoredArray) -> Job {
    kernels::doubles_stored(x, 1).pool(pool())
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_where_their_largest_input_is() {
    const ROUNDS: usize = 6;
    let scene = Scene::new("affinity", &[]).await;
    let mut places: HashMap<usize, HashMap<String, usize>> = HashMap::new();
    for _ in 0..ROUNDS {
        for input in 0..INPUTS {
            let ran_on = scene.run(&scene.fleet, input).await.ran_on.unwrap();
            *places.entry(input).or_default().entry(ran_on.worker.to_string()).or_default() += 1;
        }
    }
    let at_home: usize = places.values().map(|workers| workers.values().max().unwrap()).sum();
    // A worker does not consume for a moment while it changes its prefetch.
    assert!(at_home * 10 >= ROUNDS * INPUTS * 9, "{places:?}");
    assert!(scene.brought().await <= INPUTS as f64 * 1.5, "{} inputs brought", scene.brought().await);
    scene.ground.check_history(ROUNDS * INPUTS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slots_of_a_killed_worker_drain_through_the_others() {
    const JOBS: usize = 200;
    // The heartbeat is long. If the loss of a worker were noticed only by missing heartbeats, its jobs would be held
    // for longer than the test waits.
    let scene = Scene::new("affinity-killed", &["--heartbeat", "120s"]).await;
    // Each job has an input, so that it goes to a slot.
    let job = |number: usize| busy::for_millis(100).pool(pool()).input_stored("x", &scene.inputs[number % INPUTS]);
    let mut handles = Vec::new();
    for number in 0..JOBS {
        handles.push(scene.fleet.submit(job(number)).await.unwrap());
    }
    handles[0].wait(WAIT).await.unwrap();
    scene.workers[0].kill9().await.unwrap();
    for handle in &mut handles[1..] {
        handle.wait(WAIT).await.unwrap();
    }
    // The other worker is now the first choice of all slots.
    for input in 0..INPUTS {
        let ran_on = scene.run(&scene.fleet, input).await.ran_on.unwrap();
        assert_eq!(ran_on.worker.as_str(), scene.workers[1].name());
    }
    scene.ground.check_history(JOBS + INPUTS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn producers_with_and_without_affinity_share_a_pool() {
    let scene = Scene::new("affinity-mixed", &[]).await;
    let plain = scene.ground.client_with(client(&scene.blobs)).await;
    for input in 0..INPUTS {
        for fleet in [&plain, &scene.fleet] {
            scene.run(fleet, input).await;
        }
    }
    // A job without a large input goes to no slot.
    scene.fleet.submit(busy::for_millis(1).pool(pool())).await.unwrap().wait(WAIT).await.unwrap();
    scene.ground.check_history(2 * INPUTS + 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_for_a_pool_without_slots_is_refused() {
    let scene = Scene::new("affinity-none", &[]).await;
    let job = doubles_of(&scene.inputs[0]).pool(PoolName::default());
    let error = scene.fleet.submit(job).await.unwrap_err();
    assert!(matches!(&error, SubmitError::NoSlots { pool } if *pool == PoolName::default()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_would_wait_for_its_busy_worker_leaves_it() {
    let scene = Scene::new("affinity-leaves", &["--jobs-per-device", "1"]).await;
    let job = || busy::until_released().pool(pool()).input_stored("x", &scene.inputs[0]);
    let mut handles = Vec::new();
    for _ in 0..2 {
        handles.push(scene.fleet.submit(job()).await.unwrap());
    }
    // The worker that has the first job got the second one too.
    poll_until("the second job leaves", async || {
        let logs = scene.workers.iter().map(|worker| std::fs::read_to_string(worker.process().log()).unwrap());
        logs.into_iter().any(|log| log.contains("other workers idle, waiting jobs handed back"))
    })
    .await;
    scene.ground.release_jobs();
    for handle in &mut handles {
        busy::assert_done(&handle.wait(WAIT).await.unwrap().outputs);
    }
    scene.ground.check_history(2).await;
}
