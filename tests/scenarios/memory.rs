//! A pool gets its memory budget to the byte, jobs get memory that other pools' executors have cached, and no job sees
//! data of another job. (fault 39)

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    time::Duration,
};

use gpufleet::Job;
use gpufleet_schema::{Dtype, FailureCode, JobState, Selection, Verdict};
use gpufleet_tests::{Ground, Producer, TestWorker, WAIT, kernels, poll_until};

const MEMORY: (&str, &str) = ("GPUFLEET_EMULATOR_MEMORY", "128MiB");

/// Starts a worker whose device has little memory. It serves these pools and the default pool.
async fn small_worker(ground: &Ground, pools: &[&str]) -> TestWorker {
    let arguments: Vec<&str> = pools.iter().flat_map(|pool| ["--pool", pool]).collect();
    ground.worker_in(&arguments, &[MEMORY]).await
}

fn in_pool(job: Job, pool: &str) -> Job {
    job.pool(pool.parse().unwrap())
}

/// Returns the device memory for jobs, which the refusal of a larger job states.
async fn device_bytes(fleet: &Producer) -> u64 {
    let error = fleet.submit(kernels::doubles_in(1 << 30)).await.unwrap().wait(WAIT).await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!((failure.verdict, failure.code), (Verdict::OutOfMemory, FailureCode::OutOfMemory));
    assert!(failure.message.contains(&(1_u64 << 30).to_string()), "{}", failure.message);
    let (told, _) = failure.message.split_once(" for jobs").unwrap();
    told.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_gets_the_memory_that_an_idle_pools_executor_caches() {
    let ground = Ground::shared("memory-kept").await;
    let worker = small_worker(&ground, &["team-a", "team-b"]).await;
    let fleet = ground.client().await;
    let all = device_bytes(&fleet).await;
    // Each job needs more than half of the device, and its executor caches that memory.
    for pool in ["team-a", "team-b", "team-a"] {
        let mut job = fleet.submit(in_pool(kernels::doubles_in(all / 4 * 3), pool)).await.unwrap();
        assert_eq!(job.wait(WAIT).await.unwrap().attempt, 1);
    }
    ground.poll_log("the request", &worker, "another executor needs cached device memory").await;
    ground.check_history(4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_gets_its_budget_to_the_byte_and_lends_memory_only_while_idle() {
    let ground = Ground::shared("memory-budget").await;
    let _worker = small_worker(&ground, &["team-a:memory=50%", "team-b:memory=50%"]).await;
    let fleet = ground.client().await;
    let own = device_bytes(&fleet).await / 2;
    let endless = fleet.submit(in_pool(kernels::endless(), "team-b")).await.unwrap();
    ground.poll_job("the job of team-b running", endless.id(), |job| job.state == JobState::Running).await;

    let mut over = fleet.submit(in_pool(kernels::doubles_in(own + 1), "team-a")).await.unwrap();
    let mut exact = fleet.submit(in_pool(kernels::doubles_in(own), "team-a")).await.unwrap();
    exact.wait(WAIT).await.unwrap();
    // The ledger has recorded this job. If the other job had started, that would have been recorded before.
    ground.final_job(exact.id()).await;
    // The other job needs one byte of team-b's memory.
    ground.poll_job("the other job still waiting", over.id(), |job| job.state == JobState::Queued).await;

    fleet.cancel(Selection { jobs: vec![endless.id()], ..Selection::default() }, None).await.unwrap();
    assert_eq!(over.wait(WAIT).await.unwrap().attempt, 1, "a pool lends its memory while it has no jobs");
    ground.check_history(4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_job_sees_data_of_another_job_in_memory() {
    const COUNT: u64 = 4096;
    let ground = Ground::shared("memory-zeros").await;
    let _worker = small_worker(&ground, &["team-a", "team-b"]).await;
    let fleet = ground.client().await;
    let pattern = vec![1.5_f32; COUNT as usize];
    for pool in ["team-a", "team-a", "team-b"] {
        let left = fleet.submit(in_pool(kernels::doubles(&pattern), "team-a")).await.unwrap().wait(WAIT).await.unwrap();
        assert_eq!(left.output::<f32>("y").unwrap(), vec![3.0; COUNT as usize]);
        // Buffers of the size that the first job freed: the job reads one that it did not write, and returns one that
        // it does not touch.
        let reads = kernels::doubles_zeros(COUNT).zeros("untouched", Dtype::F32, [COUNT]).output("untouched");
        let found = fleet.submit(in_pool(reads, pool)).await.unwrap().wait(WAIT).await.unwrap();
        for output in ["y", "untouched"] {
            assert_eq!(found.output::<f32>(output).unwrap(), vec![0.0; COUNT as usize], "{output}");
        }
    }
    ground.check_history(6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_without_room_is_started_again_while_its_jobs_wait() {
    const REFUSED: &str = "not enough device memory to start an executor";
    let ground = Ground::shared("memory-context").await;
    let rules = tempfile::NamedTempFile::new().unwrap();
    // The executors of a worker that runs as root have another user, which must be able to read the file.
    fs::set_permissions(rules.path(), Permissions::from_mode(0o644)).unwrap();
    let faults = format!("@{}", rules.path().display());
    let arguments = ["--pool", "team-a", "--spare-executors", "0"];
    let worker = ground.worker_in(&arguments, &[("GPUFLEET_EMULATOR_FAULTS", &faults)]).await;
    let fleet = ground.client().await;
    fleet.submit(kernels::doubles_in(1 << 20)).await.unwrap().wait(WAIT).await.unwrap();

    fs::write(rules.path(), "context:1+=out-of-memory").unwrap();
    let endless = in_pool(kernels::endless(), "team-a").time_limit(Duration::from_millis(200));
    let ended = fleet.submit(endless).await.unwrap().wait(WAIT).await.unwrap_err();
    assert_eq!(ended.failure().unwrap().code, FailureCode::TimeLimit);
    let refusals = || fs::read_to_string(worker.process().log()).unwrap().matches(REFUSED).count();
    poll_until("the first executor is refused", async || refusals() > 0).await;
    let mut waits = fleet.submit(in_pool(kernels::doubles(&[1.0]), "team-a")).await.unwrap();
    poll_until("the worker tries repeatedly", async || refusals() > 2).await;
    ground.poll_log("the request", &worker, "another executor needs cached device memory").await;
    let neighbour = fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    assert_eq!(neighbour.attempt, 1);
    ground.poll_job("the job still waiting", waits.id(), |job| job.state == JobState::Queued).await;

    fs::write(rules.path(), "").unwrap();
    assert_eq!(waits.wait(WAIT).await.unwrap().attempt, 1);
    assert_eq!(ground.final_job(waits.id()).await.attempts.len(), 1);
    let log = fs::read_to_string(worker.process().log()).unwrap();
    assert!(!log.contains("executor failed to start"), "the refusal must not count as a failure of the device: {log}");
    ground.check_history(4).await;
}
