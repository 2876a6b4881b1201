//! The worker probes a lost device: it keeps a working device in service and takes a failed one out of service. A
//! worker without any device reports that and exits. (fault 40)

use std::time::Duration;

use gpufleet_schema::{AttemptState, JobState};
use gpufleet_tests::{Ground, WAIT, kernels};

const FAULTS: &str = "GPUFLEET_EMULATOR_FAULTS";

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_only_device_fails_exits_and_another_runs_its_jobs() {
    let ground = Ground::shared("sick-device").await;
    let sick = ground.worker_in(&[], &[(FAULTS, "launch:1+=device-lost")]).await;
    let fleet = ground.client().await;
    let mut handle = fleet.submit(kernels::doubles(&[1.0, 2.0])).await.unwrap();
    assert_eq!(sick.ended().await, Some(11));
    ground.poll_log("the failed device", &sick, "device out of service").await;
    ground.poll_log("the probe", &sick, "probe kernel failed").await;

    let _healthy = ground.worker().await;
    let result = handle.wait(WAIT).await.unwrap();
    assert_eq!(result.output::<f32>("y").unwrap(), [2.0, 4.0]);
    let detail = ground.final_job(handle.id()).await;
    assert_eq!(detail.attempts[0].state, AttemptState::Lost);
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_delivered_while_the_last_device_is_lost_run_on_another_worker() {
    let ground = Ground::shared("sick-late").await;
    let proxy = ground.proxy().await;
    let sick = ground.worker_in(&["--amqp-url", proxy.url()], &[(FAULTS, "launch:1+=device-lost")]).await;
    let fleet = ground.client().await;
    // The delay keeps the worker subscribed for a while after it has lost the device.
    proxy.delay(Duration::from_millis(300));
    let submitting = async {
        let mut handles = Vec::new();
        for _ in 0..100 {
            handles.push(fleet.submit(kernels::doubles(&[1.0])).await.unwrap());
        }
        handles
    };
    let (code, mut handles) = tokio::join!(sick.ended(), submitting);
    assert_eq!(code, Some(11));
    let _healthy = ground.worker().await;
    for handle in &mut handles {
        handle.wait(WAIT).await.unwrap();
    }
    ground.check_history(100).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_notices_that_an_idle_device_is_lost() {
    let ground = Ground::shared("lost-at-night").await;
    // The executor's start makes the first query, and its restart the second one. The third query finds the device
    // lost, and so does the next executor after it has run the probe.
    let worker = ground.start_worker_in(&[], &[(FAULTS, "info:3+=device-lost")]);
    assert_eq!(worker.ended().await, Some(11));
    for (what, text) in [
        ("the start", "device opened"),
        ("the loss", "the CUDA context was lost"),
        ("the failed device", "device out of service"),
        ("the probe", "probe kernel failed"),
    ] {
        ground.poll_log(what, &worker, text).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_passes_the_probe_stays_in_service() {
    let ground = Ground::shared("device-blip").await;
    let worker = ground.worker_in(&[], &[(FAULTS, "launch:3=device-lost")]).await;
    let fleet = ground.client().await;
    for number in 1..=3 {
        let result = fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
        assert_eq!(result.attempt, if number == 3 { 2 } else { 1 }, "job {number}");
    }
    assert!(worker.is_alive());
    ground.check_history(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_keeps_working_with_its_other_devices() {
    let ground = Ground::shared("half-sick").await;
    let environment = [(FAULTS, "1/launch:1+=device-lost"), ("GPUFLEET_EMULATOR_DEVICES", "2")];
    let worker = ground.worker_in(&["--devices", "0,1"], &environment).await;
    let fleet = ground.client().await;
    // Enough jobs to use both devices, because the worker may prefer the working one.
    let mut handles = Vec::new();
    for _ in 0..8 {
        handles.push(fleet.submit(gpufleet_tests::busy::for_millis(100)).await.unwrap());
    }
    for handle in &mut handles {
        assert_eq!(handle.wait(WAIT).await.unwrap().ran_on.unwrap().device, 0);
    }
    ground.poll_log("the end of device 1", &worker, "device out of service").await;
    assert!(worker.is_alive());
    for handle in &handles {
        assert_eq!(ground.final_job(handle.id()).await.job.state, JobState::Succeeded);
    }
    ground.check_history(8).await;
}
