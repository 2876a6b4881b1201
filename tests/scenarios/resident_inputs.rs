//! An input that many jobs name by its digest is read from the store and copied to the device once for each pool.

use std::fs;

use futures::future::join_all;
use gpufleet::{Array, Fleet, Job, JobError, StoredArray};
use gpufleet_schema::{Dtype, FailureCode, JobId, JobState, Selection};
use gpufleet_tests::{Ground, METRICS, Producer, TestWorker, WAIT, kernels};
use tempfile::TempDir;

/// The number of floats in 1 MiB.
const FLOATS: usize = 1 << 18;

struct Scene {
    ground: Ground,
    worker: TestWorker,
    fleet: Producer,
    blobs: TempDir,
}

impl Scene {
    async fn new(label: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let blobs = tempfile::tempdir().unwrap();
        let ground = Ground::with_environment(label, &[("GPUFLEET_BLOBS", blobs.path().to_str().unwrap())]).await;
        let worker = ground.worker_in(&[&METRICS[..], arguments].concat(), environment).await;
        let fleet = ground.client_with(Fleet::builder().blobs(blobs.path())).await;
        Self { ground, worker, fleet, blobs }
    }

    async fn store(&self, first: f32) -> StoredArray {
        self.fleet.store(Array::from_slice(&floats(first))).await.unwrap()
    }

    /// Returns how many inputs were copied from the store, and how many were resident.
    async fn inputs(&self, pool: &str) -> (f64, f64) {
        let metrics = self.worker.metrics().await;
        let from = |source| metrics.sum("gpufleet_inputs_total", &[("pool", pool), ("source", source)]);
        (from("store"), from("device"))
    }

    async fn run(&self, job: Job) -> Vec<f32> {
        self.fleet.submit(job).await.unwrap().wait(WAIT).await.unwrap().output("y").unwrap()
    }

    /// Runs a job, and returns the device on which it ran.
    async fn device_of(&self, job: Job) -> u32 {
        let result = self.fleet.submit(job).await.unwrap().wait(WAIT).await.unwrap();
        result.ran_on.unwrap().device
    }

    /// Starts endless jobs until one runs on the device `home`. Returns that job and the jobs on the other device.
    async fn occupy(&self, home: u32) -> (JobId, Vec<JobId>) {
        let mut elsewhere = Vec::new();
        loop {
            let endless = self.fleet.submit(kernels::endless()).await.unwrap().id();
            let mut device = None;
            self.ground
                .poll_attempts("the endless job running", endless, |detail| {
                    device = detail.attempts.first().and_then(|attempt| attempt.device);
                    device.is_some()
                })
                .await;
            if device == Some(home) {
                return (endless, elsewhere);
            }
            elsewhere.push(endless);
        }
    }

    async fn cancel(&self, jobs: &[JobId]) {
        if jobs.is_empty() {
            return;
        }
        self.fleet.cancel(Selection { jobs: jobs.to_vec(), ..Selection::default() }, None).await.unwrap();
        for job in jobs {
            assert_eq!(self.ground.final_job(*job).await.job.state, JobState::Cancelled);
        }
    }
}

fn floats(first: f32) -> Vec<f32> {
    (0..FLOATS).map(|index| first + index as f32).collect()
}

/// Returns a job that doubles the first two elements of `x`. Only eight bytes are returned.
fn doubles_of(x: &StoredArray) -> Job {
    kernels::doubles_stored(x, 2)
}

/// Returns a job that computes `y = x + y`, whose input `y` is stored and overwritten in place.
fn adds_to(y: &StoredArray) -> Job {
    Job::catalog("saxpy").scalar("a", 1.0).input("x", &vec![1.0_f32; FLOATS]).input_stored("y", y).output("y")
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_share_an_input_bring_it_once_even_if_they_run_at_once() {
    const JOBS: usize = 50;
    let scene = Scene::new("resident", &[], &[]).await;
    let x = scene.store(1.0).await;
    for y in join_all((0..JOBS).map(|_| scene.run(doubles_of(&x)))).await {
        assert_eq!(y, [2.0, 4.0]);
    }
    assert_eq!(scene.inputs("default").await, (1.0, JOBS as f64 - 1.0));
    // The device no longer needs the store.
    fs::remove_dir_all(scene.blobs.path()).unwrap();
    assert_eq!(scene.run(doubles_of(&x)).await, [2.0, 4.0]);
    fs::create_dir(scene.blobs.path()).unwrap();
    scene.ground.check_history(JOBS + 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_that_overwrites_its_input_changes_only_its_own_copy() {
    let scene = Scene::new("resident-overwritten", &[], &[]).await;
    let y = scene.store(0.0).await;
    for _ in 0..3 {
        assert_eq!(scene.run(adds_to(&y)).await, floats(1.0));
    }
    let (store, device) = scene.inputs("default").await;
    assert_eq!((store, device), (2.0, 4.0), "both arrays are in the store");
    scene.ground.check_history(3).await;
}

/// Kernels that only read an input, and one that changes it.
const KERNELS: &str = r#"
extern "C" __global__ void doubles(const float *x, float *y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }
extern "C" __global__ void spoils(float *x, float *y) { x[threadIdx.x] += 1; y[threadIdx.x] = x[threadIdx.x]; }
"#;

fn runs(entry: &str, x: &StoredArray) -> Job {
    let job = Job::source(KERNELS).input_stored("x", x).zeros("y", Dtype::F32, [32]).output("y");
    job.entry(entry).blocks([1]).block([32]).arg_buffer("x").arg_buffer("y")
}

/// Runs jobs that only read an input, jobs that copy it, and a few that write to it although they share it.
async fn share_with_writers(label: &str, environment: &[(&str, &str)]) {
    // The number of jobs that write. A program that has killed three executors is quarantined.
    const WRITERS: usize = 2;
    let scene = Scene::new(label, &[], environment).await;
    let x = scene.store(1.0).await;
    let (mut readers, mut writers) = (Vec::new(), Vec::new());
    for number in 0..60 {
        match number % 30 {
            7 => writers.push(scene.fleet.submit(runs("spoils", &x).share("x")).await.unwrap()),
            4 | 11 | 17 | 23 => readers.push(scene.fleet.submit(runs("doubles", &x)).await.unwrap()),
            _ => readers.push(scene.fleet.submit(runs("doubles", &x).share("x")).await.unwrap()),
        }
    }
    let jobs = readers.len() + writers.len();
    let doubled: Vec<f32> = floats(1.0)[..32].iter().map(|x| 2.0 * x).collect();
    for mut reader in readers {
        assert_eq!(reader.wait(WAIT).await.unwrap().output::<f32>("y").unwrap(), doubled);
    }
    assert_eq!(writers.len(), WRITERS);
    for mut writer in writers {
        match writer.wait(WAIT).await {
            Err(JobError::Failed(failed)) => assert_eq!(failed.failure.unwrap().code, FailureCode::KernelFault),
            ended => panic!("it wrote to a shared input, and {ended:?}"),
        }
    }
    // Without `share`, the same kernel changes only a copy of its own.
    assert_eq!(scene.run(runs("spoils", &x)).await[..2], [2.0, 3.0]);
    assert_eq!(scene.run(runs("doubles", &x).share("x")).await, doubled);
    scene.ground.check_history(jobs + 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_writes_to_a_shared_input_fails_and_no_other_job_sees_it() {
    share_with_writers("resident-shared", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_to_a_shared_input_is_noticed_on_a_device_that_can_not_stop_it() {
    share_with_writers("resident-unprotected", &[("GPUFLEET_EMULATOR_PROTECTION", "off")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_input_is_shared_between_pools() {
    let scene = Scene::new("resident-pools", &["--pool", "team-a", "--pool", "team-b"], &[]).await;
    let x = scene.store(1.0).await;
    for pool in ["team-a", "team-b"] {
        for _ in 0..2 {
            scene.run(doubles_of(&x).pool(pool.parse().unwrap())).await;
        }
        assert_eq!(scene.inputs(pool).await, (1.0, 1.0));
    }
    scene.ground.check_history(4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_comes_again_after_its_executor_was_killed() {
    let scene = Scene::new("resident-killed", &[], &[]).await;
    let x = scene.store(1.0).await;
    scene.run(doubles_of(&x)).await;
    scene.worker.kill_executor().await;
    assert_eq!(scene.run(doubles_of(&x)).await, [2.0, 4.0]);
    assert_eq!(scene.inputs("default").await, (2.0, 0.0));
    scene.ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resident_inputs_give_way_to_jobs_of_other_pools() {
    let memory = [("GPUFLEET_EMULATOR_MEMORY", "64MiB")];
    let scene = Scene::new("resident-give-way", &["--pool", "team-a", "--resident-inputs", "32MiB"], &memory).await;
    for number in 0..16_u8 {
        let x = scene.store(number.into()).await;
        assert_eq!(scene.run(doubles_of(&x)).await[0], 2.0 * f32::from(number));
    }
    // The device has 48 MiB for jobs, because the heaps of the two pools take the rest.
    let large = kernels::doubles_in(40 << 20).pool("team-a".parse().unwrap());
    scene.fleet.submit(large).await.unwrap().wait(WAIT).await.unwrap();
    scene.ground.poll_log("the request", &scene.worker, "another executor needs cached device memory").await;
    scene.ground.check_history(17).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inputs_that_fit_stay_and_the_others_come_each_time() {
    let scene = Scene::new("resident-limited", &["--resident-inputs", "2MiB"], &[]).await;
    let stored = join_all((0..3_u8).map(|first| scene.store(first.into()))).await;
    for _ in 0..2 {
        for (first, x) in (0..3_u8).zip(&stored) {
            assert_eq!(scene.run(doubles_of(x)).await[0], 2.0 * f32::from(first));
        }
    }
    // There is room for two of three inputs, so each is evicted before it is used again.
    assert_eq!(scene.inputs("default").await, (6.0, 0.0));
    scene.run(doubles_of(&stored[2])).await;
    assert_eq!(scene.inputs("default").await, (6.0, 1.0));
    scene.ground.check_history(7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_stays_if_the_operator_wants_it_so() {
    let scene = Scene::new("resident-off", &["--resident-inputs", "0"], &[]).await;
    let x = scene.store(1.0).await;
    for _ in 0..2 {
        scene.run(doubles_of(&x)).await;
    }
    assert_eq!(scene.inputs("default").await, (2.0, 0.0));
    scene.ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_starts_on_the_device_that_has_its_input_although_another_is_idle() {
    let scene = Scene::new("resident-devices", &[], &[("GPUFLEET_EMULATOR_DEVICES", "2")]).await;
    let x = scene.store(1.0).await;
    let home = scene.device_of(doubles_of(&x)).await;
    let (here, elsewhere) = scene.occupy(home).await;
    scene.cancel(&elsewhere).await;
    // The other device has more free slots, so jobs without an input go there.
    assert_ne!(scene.device_of(kernels::doubles_zeros(4)).await, home);
    for _ in 0..5 {
        assert_eq!(scene.device_of(doubles_of(&x)).await, home);
    }
    assert_eq!(scene.inputs("default").await, (1.0, 5.0));
    scene.cancel(&[here]).await;
    scene.ground.check_history(8 + elsewhere.len()).await;
}
