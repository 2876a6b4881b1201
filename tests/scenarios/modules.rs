//! CUDA C is compiled once for all pools of a worker, and, with a persistent cache folder, for later workers too.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use gpufleet::{Job, JobResult};
use gpufleet_local::Signal;
use gpufleet_schema::{Dtype, JobId, PoolName};
use gpufleet_tests::{Ground, TestWorker, WAIT};

/// Returns a job in CUDA C that adds `step` to an integer.
fn adds(step: u32) -> Job {
    let source = format!("extern \"C\" __global__ void adds(unsigned* y) {{ y[threadIdx.x] += {step}u; }}\n");
    Job::source(source).zeros("y", Dtype::U32, [32]).entry("adds").blocks([1]).block([32]).arg_buffer("y").output("y")
}

fn assert_added(result: &JobResult, step: u32) {
    assert_eq!(result.output::<u32>("y").unwrap(), [step; 32]);
}

/// Returns the compile time of the job's only attempt in microseconds, from the ledger.
async fn compile_us(ground: &Ground, job_id: JobId) -> u64 {
    let detail = ground.final_job(job_id).await;
    assert_eq!(detail.attempts.len(), 1);
    detail.attempts[0].timings.as_ref().expect("it ran").compile_us
}

/// Stops the worker, and returns the line of its log with the counts of programs.
async fn counts(worker: &TestWorker) -> String {
    assert_eq!(worker.stop(Signal::Terminate).await, Some(0));
    let log = fs::read_to_string(worker.process().log()).unwrap();
    let line = log.lines().rev().find(|line| line.contains("stopped")).expect("a worker logs that it stopped");
    line[line.find("compiled=").unwrap()..].to_owned()
}

fn bytes_in(folder: &Path) -> u64 {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_worker_compiles_nothing() {
    let (ground, fleet) = Ground::with_client("modules-restart").await;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("modules");
    let arguments = ["--cache-dir", folder.to_str().unwrap()];

    let first = ground.worker_with(&arguments).await;
    let mut compiled = fleet.submit(adds(1)).await.unwrap();
    assert_added(&compiled.wait(WAIT).await.unwrap(), 1);
    assert!(compile_us(&ground, compiled.id()).await > 0);
    assert_eq!(counts(&first).await, "compiled=1 from_memory=0 from_disk=0");

    let second = ground.worker_with(&arguments).await;
    let mut kept = fleet.submit(adds(1)).await.unwrap();
    assert_added(&kept.wait(WAIT).await.unwrap(), 1);
    assert_eq!(compile_us(&ground, kept.id()).await, 0);
    assert_eq!(counts(&second).await, "compiled=0 from_memory=0 from_disk=1");

    for file in fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    let third = ground.worker_with(&arguments).await;
    let mut again = fleet.submit(adds(1)).await.unwrap();
    assert_added(&again.wait(WAIT).await.unwrap(), 1);
    assert!(compile_us(&ground, again.id()).await > 0, "a damaged program is compiled again");
    ground.poll_log("the damage", &third, "cached program unusable").await;
    ground.check_history(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_on_disk_stay_within_their_limit() {
    const CAP: u64 = 8 << 10;
    let ground = Ground::shared("modules-cap").await;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("modules");
    let _worker = ground.worker_with(&["--cache-dir", folder.to_str().unwrap(), "--cache-size", "8KiB"]).await;
    let fleet = ground.client().await;
    let steps = 1..=24;
    for step in steps.clone() {
        assert_added(&fleet.submit(adds(step)).await.unwrap().wait(WAIT).await.unwrap(), step);
        assert!((1..=CAP).contains(&bytes_in(&folder)), "{}", bytes_in(&folder));
    }
    ground.check_history(steps.count()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pools_that_need_the_same_program_at_once_compile_it_once() {
    let ground = Ground::shared("modules-pools").await;
    ground.declare_pools(&["team-a", "team-b"]).await;
    let fleet = ground.client().await;
    let pools: [PoolName; 2] = ["team-a".parse().unwrap(), "team-b".parse().unwrap()];
    let mut handles = Vec::new();
    for index in 0..16 {
        handles.push(fleet.submit(adds(3).pool(pools[index % 2].clone())).await.unwrap());
    }
    let worker = ground.worker_with(&["--pool", "team-a", "--pool", "team-b"]).await;
    for handle in &mut handles {
        assert_added(&handle.wait(WAIT).await.unwrap(), 3);
    }
    ground.check_history(16).await;
    let counts = counts(&worker).await;
    assert!(counts.starts_with("compiled=1 "), "{counts}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_refuses_a_forbidden_program_that_another_pool_has_compiled() {
    let ground = Ground::shared("modules-policy").await;
    let _worker = ground.worker_with(&["--pool", "open", "--pool", "closed:allow=catalog"]).await;
    let fleet = ground.client().await;
    let in_pool = |pool: &str| adds(5).pool(pool.parse().unwrap());
    assert_added(&fleet.submit(in_pool("open")).await.unwrap().wait(WAIT).await.unwrap(), 5);
    let error = fleet.submit(in_pool("closed")).await.unwrap().wait(WAIT).await.unwrap_err();
    assert_eq!(error.failure().unwrap().code, gpufleet_schema::FailureCode::Policy);
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_folder_that_others_can_write_to_is_refused_by_name() {
    let ground = Ground::shared("modules-folder").await;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let worker = ground.start_worker(&["--cache-dir", folder.path().to_str().unwrap()]);
    assert_eq!(worker.ended().await, Some(2));
    let log = fs::read_to_string(worker.process().log()).unwrap();
    let told = format!("use {} as a cache: other users can read or write it (mode 777)", folder.path().display());
    assert!(log.contains(&told), "{log}");
}
