//! Device memory is assigned once: exactly within a guarantee, beside the caches of other pools' executors, and never with another job's data in
//! it. (fault 39)

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    time::Duration,
};

use gpufleet::Job;
use gpufleet_schema::{Dtype, FailureCode, JobState, Selection, Verdict};
use gpufleet_tests::{Ground, Producer, TestWorker, WAIT, kernels, poll_until};

const MEMORY: (&str, &str) = ("GPUFLEET_EMULATOR_MEMORY", "128MiB");

/// A worker whose device has little memory; its pools come on top of the default one.
async fn small_worker(ground: &Ground, pools: &[&str]) -> TestWorker {
    let arguments: Vec<&str> = pools.iter().flat_map(|pool| ["--pool", pool]).collect();
    ground.worker_in(&arguments, &[MEMORY]).await
}

fn in_pool(job: Job, pool: &str) -> Job {
    job.pool(pool.parse().unwrap())
}

/// What jobs can have of the device together: it is in the refusal of one that wants more.
async fn device_bytes(fleet: &Producer) -> u64 {
    let error = fleet.submit(kernels::doubles_in(1 << 30)).await.unwrap().wait(WAIT).await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!((failure.verdict, failure.code), (Verdict::OutOfMemory, FailureCode::OutOfMemory));
    assert!(failure.message.contains(&(1_u64 << 30).to_string()), "{}", failure.message);
    let (told, _) = failure.message.split_once(" for jobs").unwrap();
    told.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_gets_what_an_idle_pools_executor_keeps() {
    let ground = Ground::shared("memory-kept").await;
    let worker = small_worker(&ground, &["team-a", "team-b"]).await;
    let fleet = ground.client().await;
    let all = device_bytes(&fleet).await;
    // Each wants more than half of the device, and its executor keeps it.
    for pool in ["team-a", "team-b", "team-a"] {
        let mut job = fleet.submit(in_pool(kernels::doubles_in(all / 4 * 3), pool)).await.unwrap();
        assert_eq!(job.wait(WAIT).await.unwrap().attempt, 1);
    }
    ground.poll_log("the request", &worker, "another pool needs cached device memory").await;
    ground.check_history(4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_is_there_to_the_byte_and_what_is_lent_is_bounded_to_the_byte() {
    let ground = Ground::shared("memory-budget").await;
    let _worker = small_worker(&ground, &["team-a:memory=50%", "team-b:memory=50%"]).await;
    let fleet = ground.client().await;
    let own = device_bytes(&fleet).await / 2;
    let endless = fleet.submit(in_pool(kernels::endless(), "team-b")).await.unwrap();
    ground.poll_job("team-b at work", endless.id(), |job| job.state == JobState::Running).await;

    let mut over = fleet.submit(in_pool(kernels::doubles_in(own + 1), "team-a")).await.unwrap();
    let mut exact = fleet.submit(in_pool(kernels::doubles_in(own), "team-a")).await.unwrap();
    exact.wait(WAIT).await.unwrap();
    // The ledger has come that far: had the other started before, it would know.
    ground.final_job(exact.id()).await;
    // A byte of it would be team-b's.
    ground.poll_job("the other still waiting", over.id(), |job| job.state == JobState::Queued).await;

    fleet.cancel(Selection { jobs: vec![endless.id()], ..Selection::default() }, None).await.unwrap();
    assert_eq!(over.wait(WAIT).await.unwrap().attempt, 1, "what has no work is lent");
    ground.check_history(4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_job_finds_what_another_left_in_memory() {
    const COUNT: u64 = 4096;
    let ground = Ground::shared("memory-zeros").await;
    let _worker = small_worker(&ground, &["team-a", "team-b"]).await;
    let fleet = ground.client().await;
    let pattern = vec![1.5_f32; COUNT as usize];
    for pool in ["team-a", "team-a", "team-b"] {
        let left = fleet.submit(in_pool(kernels::doubles(&pattern), "team-a")).await.unwrap().wait(WAIT).await.unwrap();
        assert_eq!(left.output::<f32>("y").unwrap(), vec![3.0; COUNT as usize]);
        // As large as what was just left: it reads memory that it did not write, and returns some that it does not touch.
        let reads = kernels::doubles_zeros(COUNT).zeros("untouched", Dtype::F32, [COUNT]).output("untouched");
        let found = fleet.submit(in_pool(reads, pool)).await.unwrap().wait(WAIT).await.unwrap();
        for output in ["y", "untouched"] {
            assert_eq!(found.output::<f32>(output).unwrap(), vec![0.0; COUNT as usize], "{output}");
        }
    }
    ground.check_history(6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_that_finds_no_room_beside_others_is_tried_again_while_its_jobs_wait() {
    const REFUSED: &str = "not enough device memory to start an executor";
    let ground = Ground::shared("memory-context").await;
    let rules = tempfile::NamedTempFile::new().unwrap();
    // Executors of a worker that runs as root have another user.
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
    poll_until("there is no executor", async || refusals() > 0).await;
    let mut waits = fleet.submit(in_pool(kernels::doubles(&[1.0]), "team-a")).await.unwrap();
    poll_until("it is tried again and again", async || refusals() > 2).await;
    ground.poll_log("the request", &worker, "another pool needs cached device memory").await;
    let neighbour = fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    assert_eq!(neighbour.attempt, 1);
    ground.poll_job("the job still waiting", waits.id(), |job| job.state == JobState::Queued).await;

    fs::write(rules.path(), "").unwrap();
    assert_eq!(waits.wait(WAIT).await.unwrap().attempt, 1);
    assert_eq!(ground.final_job(waits.id()).await.attempts.len(), 1);
    let log = fs::read_to_string(worker.process().log()).unwrap();
    assert!(!log.contains("executor failed to start"), "that would count against the device: {log}");
    ground.check_history(4).await;
}
