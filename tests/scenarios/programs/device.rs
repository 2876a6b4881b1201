//! A host program has its device to itself: executors leave it with their contexts, and come back for the jobs that waited.

use gpufleet_tests::kernels;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn no_executor_is_on_the_device_of_a_program_and_jobs_run_after_it() {
    let ground = Ground::shared("program-device").await;
    let environment = environment();
    let plain = plain(&environment);
    let worker = ground.worker_with(&arguments("gpu:programs=1", &plain)).await;
    let scene = Scene { ground, worker, environment };
    let here = folder();
    let before = scene.worker.executors();
    assert!(before.len() >= 2, "each pool has one: {before:?}");
    let until_go = "echo begun; until test -e \"$VIRTUAL_ENV/go\"; do sleep 0.1; done";
    let mut run = scene.start_run(here.path(), &["--quiet"], until_go);
    assert_eq!(run.line().await.as_deref(), Some("begun"));
    assert_eq!(scene.worker.executors(), [] as [u32; 0], "no context takes memory of the device");
    let fleet = scene.ground.client().await;
    let mut job = fleet.submit(kernels::doubles(&[3.0])).await.unwrap();
    scene.ground.poll_job("the job is in the ledger", job.id(), |job| job.state == JobState::Queued).await;
    assert_eq!(scene.worker.executors(), [] as [u32; 0], "a job that waits brings none back");
    fs::write(scene.environment.path().join("go"), "").unwrap();
    assert_eq!(run.ended().await.code, 0);
    job.wait(WAIT).await.unwrap();
    assert!(!scene.worker.executors().iter().any(|executor| before.contains(executor)));
    assert_eq!(scene.worker.count_in_log("executor lost"), 0, "an executor that leaves for a program is not lost");
}
