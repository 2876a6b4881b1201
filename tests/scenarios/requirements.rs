//! A job whose requirements a worker's devices do not meet is forwarded to a worker that meets them. If there is none,
//! the job fails with the requirements and the fleet's devices.

use gpufleet_local::Signal;
use gpufleet_schema::{Dtype, FailureCode, JobState, Verdict};
use gpufleet_tests::{Ground, METRICS, WAIT, kernels, poll_until};

const CAPABILITY: &str = "GPUFLEET_EMULATOR_COMPUTE_CAPABILITY";
const MEMORY: &str = "GPUFLEET_EMULATOR_MEMORY";

#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_on_the_worker_that_meets_their_requirements() {
    let ground = Ground::shared("fits").await;
    let small = ground.worker_in(&METRICS, &[(CAPABILITY, "8.0"), (MEMORY, "512MiB")]).await;
    let large = ground.worker_in(&[], &[(CAPABILITY, "9.0"), (MEMORY, "1GiB")]).await;
    let fleet = ground.client().await;
    let mut handles = Vec::new();
    for _ in 0..6 {
        let job = kernels::doubles(&[1.0]).requires_compute_capability(9, 0);
        handles.push(fleet.submit(job).await.unwrap());
    }
    for handle in &mut handles {
        let result = handle.wait(WAIT).await.unwrap();
        assert_eq!((result.ran_on.unwrap().worker.as_str(), result.attempt), (large.name(), 1));
    }
    let forwarded = async || small.metrics().await.sum("gpufleet_jobs_forwarded_total", &[("pool", "default")]);
    poll_until("the small worker has counted its forwarded jobs", async || forwarded().await >= 1.0).await;
    ground.check_history(6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_no_worker_can_run_fail_with_the_available_devices() {
    let ground = Ground::shared("fits-nowhere").await;
    let _small = ground.worker_in(&[], &[(CAPABILITY, "8.0")]).await;
    let _large = ground.worker_in(&[], &[(CAPABILITY, "9.0")]).await;
    let fleet = ground.client().await;
    let job = || kernels::doubles(&[1.0]).requires_compute_capability(12, 0);
    let mut handles = [fleet.submit(job()).await.unwrap(), fleet.submit(job()).await.unwrap()];
    for handle in &mut handles {
        let error = handle.wait(WAIT).await.unwrap_err();
        let failure = error.failure().unwrap();
        assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::RequirementsNotMet));
        for part in
            ["has compute capability 12.0; available: 1 × ", "(compute capability 8.0,", "(compute capability 9.0,"]
        {
            assert!(failure.message.contains(part), "{part}: {}", failure.message);
        }
    }
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forwarded_job_waits_for_the_only_suitable_worker_while_it_is_busy() {
    let ground = Ground::shared("fits-busy").await;
    let large = ground.worker_in(&["--prefetch", "1", "--jobs-per-device", "1"], &[(CAPABILITY, "9.0")]).await;
    let fleet = ground.client().await;
    large.pause_executors();
    // One job runs, and the worker has prefetched one from each of its two queues.
    let (mut handles, mut requires) = (Vec::new(), None);
    for _ in 0..6 {
        let job = kernels::doubles(&[1.0]).requires_compute_capability(9, 0);
        handles.push(fleet.submit(job).await.unwrap());
        if requires.is_none() {
            let running = handles[0].id();
            ground.poll_job("running", running, |job| job.state == JobState::Running).await;
            requires = Some(ground.worker_in(&[], &[(CAPABILITY, "8.0")]).await);
        }
    }
    let small = requires.expect("the worker was started with the first job");
    ground.poll_log("a forwarded job", &small, "requirements not met here, job forwarded").await;
    assert_eq!(
        small.stop(Signal::Terminate).await,
        Some(0),
        "a forwarded job does not need the worker that forwarded it"
    );
    large.resume_executors();
    for handle in &mut handles {
        assert_eq!(handle.wait(WAIT).await.unwrap().ran_on.unwrap().worker.as_str(), large.name());
    }
    ground.check_history(6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_a_class_without_workers_is_requeued_and_runs_on_a_later_suitable_worker() {
    let ground = Ground::shared("fits-lost").await;
    let small = ground.worker_in(&[], &[(CAPABILITY, "8.0")]).await;
    let lost = ground.worker_in(&[], &[(CAPABILITY, "9.0")]).await;
    let fleet = ground.client().await;
    lost.pause_executors();
    let mut handles = Vec::new();
    for _ in 0..4 {
        let job = kernels::doubles(&[1.0]).requires_compute_capability(9, 0);
        handles.push(fleet.submit(job).await.unwrap());
    }
    ground.poll_log("a forwarded job", &small, "requirements not met here, job forwarded").await;
    for handle in &handles {
        ground.poll_job("running", handle.id(), |job| job.state == JobState::Running).await;
    }
    lost.kill9().await.unwrap();
    ground
        .poll_log("the class without workers", &small, "stranded jobs requeued: their device class has no worker")
        .await;
    ground.poll_log("the delayed job", &small, "no worker can take the job now, job delayed").await;
    // This worker has another device class. It does not consume from the queue of the first class.
    let later = ground.worker_in(&[], &[(CAPABILITY, "9.0"), (MEMORY, "1GiB")]).await;
    for handle in &mut handles {
        let result = handle.wait(WAIT).await.unwrap();
        assert_eq!(result.ran_on.unwrap().worker.as_str(), later.name());
        // Each job has run twice. Its numbers may have gaps: a worker that changes its prefetch subscribes again, and RabbitMQ counts the
        // messages on their way to the old subscription as delivered.
        let job = ground.final_job(handle.id()).await;
        let numbers: Vec<u32> = job.attempts.iter().map(|attempt| attempt.attempt).collect();
        assert!(matches!(numbers[..], [first, last] if first < last && last == result.attempt), "{numbers:?}");
    }
    ground.check_history(4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_too_large_for_one_worker_goes_to_one_that_can_hold_it() {
    let ground = Ground::shared("holds").await;
    let _small = ground.worker_in(&[], &[(MEMORY, "64MiB")]).await;
    let large = ground.worker_in(&[], &[(MEMORY, "256MiB")]).await;
    let fleet = ground.client().await;
    let mut handles = Vec::new();
    for _ in 0..4 {
        let job = kernels::doubles(&[1.0]).zeros("room", Dtype::U8, [96 << 20]);
        handles.push(fleet.submit(job).await.unwrap());
    }
    for handle in &mut handles {
        let result = handle.wait(WAIT).await.unwrap();
        assert_eq!((result.ran_on.unwrap().worker.as_str(), result.attempt), (large.name(), 1));
    }
    ground.check_history(4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_too_large_for_all_workers_fails_with_the_numbers() {
    let ground = Ground::shared("holds-nowhere").await;
    let _first = ground.worker_in(&[], &[(MEMORY, "64MiB")]).await;
    let _second = ground.worker_in(&[], &[(MEMORY, "128MiB")]).await;
    let fleet = ground.client().await;
    let job = kernels::doubles(&[1.0]).zeros("room", Dtype::U8, [1 << 30]);
    let error = fleet.submit(job).await.unwrap().wait(WAIT).await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!((failure.verdict, failure.code), (Verdict::OutOfMemory, FailureCode::OutOfMemory));
    for part in [format!("{} bytes)", 64 << 20), format!("{} bytes)", 128 << 20)] {
        assert!(failure.message.contains(&part), "{part}: {}", failure.message);
    }
    ground.check_history(1).await;
}
