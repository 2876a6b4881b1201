//! A worker uses the selected devices, including MIG slices, works without those that do not start, and reports the
//! sensors of each. A worker that sends no heartbeats is shown as silent, and its jobs as unknown. (faults 32 and 40)

use std::path::PathBuf;

use chrono::Utc;
use gpufleet_emulator::driver::visible::Part;
use gpufleet_ledger::WorkerRow;
use gpufleet_schema::{JobState, topology::LEDGER_QUEUE};
use gpufleet_tests::{Ground, WAIT, busy, kernels, poll_until};

const DEVICES: &str = "GPUFLEET_EMULATOR_DEVICES";
const FAULTS: &str = "GPUFLEET_EMULATOR_FAULTS";

/// Returns the path of the fake NVML library, which Cargo builds for these tests.
fn fake_nvml() -> String {
    let name = "libgpufleet_fake_nvml.so";
    let path: PathBuf = std::env::current_exe().unwrap().with_file_name(name);
    path.display().to_string()
}

fn uuid(device: u32, slice: Option<u32>) -> String {
    Part { device, slice }.uuid_text()
}

fn uuids(worker: &WorkerRow) -> Vec<&str> {
    worker.devices.iter().map(|device| device.uuid.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_uses_all_devices_and_reports_the_load_of_each() {
    let ground = Ground::shared("all-devices").await;
    let worker = ground.worker_in(&["--jobs-per-device", "1"], &[(DEVICES, "2")]).await;
    let fleet = ground.client().await;
    let mut handles = Vec::new();
    for _ in 0..2 {
        handles.push(fleet.submit(busy::until_released()).await.unwrap());
    }
    ground
        .poll_worker("both devices are busy", worker.name(), |worker| {
            worker.devices.len() == 2
                && worker.devices.iter().all(|device| {
                    let pool = &device.pools[0];
                    device.jobs_running == Some(1)
                        && (pool.pool.as_str(), pool.jobs_running) == ("default", 1)
                        && pool.memory_bytes > 0
                        && device.utilization_by.as_deref() == Some("worker")
                        && device.utilization_percent.is_some_and(|percent| (1..=100).contains(&percent))
                })
        })
        .await;
    ground.release_jobs();
    for handle in &mut handles {
        busy::assert_done(&handle.wait(WAIT).await.unwrap().outputs);
    }
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_is_chosen_by_its_uuid() {
    let ground = Ground::shared("by-uuid").await;
    let third = uuid(2, None);
    let worker = ground.worker_in(&["--devices", &third[..20]], &[(DEVICES, "3")]).await;
    let fleet = ground.client().await;
    let result = fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    assert_eq!(result.ran_on.unwrap().device, 2);
    ground
        .poll_worker("the worker has only the third device", worker.name(), |worker| uuids(worker) == [third.as_str()])
        .await;
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_fails_to_start_is_out_of_service_and_the_others_work() {
    let ground = Ground::shared("half-starts").await;
    let environment = [(DEVICES, "2"), (FAULTS, "0/context:1+=device-lost")];
    let worker = ground.worker_in(&[], &environment).await;
    let fleet = ground.client().await;
    let result = fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    assert_eq!(result.ran_on.unwrap().device, 1);
    ground.poll_log("the failed device", &worker, "device out of service").await;
    ground
        .poll_worker("the ledger shows the failed device", worker.name(), |worker| {
            let reasons: Vec<bool> = worker.devices.iter().map(|device| device.out_of_service.is_some()).collect();
            reasons == [true, false]
        })
        .await;
    let folder = tempfile::tempdir().unwrap();
    let listed = ground.gpufleet(folder.path(), &["workers"]).await;
    assert!(listed.stdout.contains("device 0 is out of service: "), "{}", listed.stdout);
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_a_working_device_says_so_and_exits() {
    let ground = Ground::shared("none-starts").await;
    let worker = ground.start_worker_in(&[], &[(FAULTS, "context:1+=device-lost")]);
    assert_eq!(worker.ended().await, Some(11));
    ground.poll_log("the reason", &worker, "no device is left in service: device 0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_slice_of_a_gpu_is_a_device() {
    let ground = Ground::shared("slices").await;
    let slices = [uuid(0, Some(0)), uuid(0, Some(1))];
    let known = slices.join(",");
    let environment = [
        ("GPUFLEET_EMULATOR_SLICES", "2"),
        ("GPUFLEET_EMULATOR_MEMORY", "512MiB"),
        ("NVIDIA_FAKE_NVML", known.as_str()),
    ];
    let worker = ground.worker_in(&["--nvml", &fake_nvml(), "--jobs-per-device", "1"], &environment).await;
    ground
        .poll_worker("the worker has both slices", worker.name(), |worker| {
            uuids(worker) == slices && worker.devices.iter().all(|device| device.memory_bytes == 256 << 20)
        })
        .await;
    let fleet = ground.client().await;
    let mut handles = Vec::new();
    for _ in 0..2 {
        handles.push(fleet.submit(busy::until_released()).await.unwrap());
    }
    for handle in &handles {
        ground.poll_started(handle.id()).await;
    }
    ground.release_jobs();
    let mut devices = Vec::new();
    for handle in &mut handles {
        devices.push(handle.wait(WAIT).await.unwrap().ran_on.unwrap().device);
    }
    devices.sort_unstable();
    assert_eq!(devices, [0, 1]);
    ground.check_history(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_reports_temperature_power_and_utilization_from_nvml() {
    let ground = Ground::shared("nvml").await;
    let known = format!("{}=41/55/350500/1073741824", uuid(0, None));
    let worker = ground.worker_in(&["--nvml", &fake_nvml()], &[("NVIDIA_FAKE_NVML", &known)]).await;
    ground
        .poll_worker("the ledger has NVML's readings", worker.name(), |worker| {
            let device = &worker.devices[0];
            let use_ = (device.utilization_percent, device.utilization_by.as_deref(), device.memory_used_bytes);
            use_ == (Some(41), Some("nvml"), Some(1 << 30))
                && (device.temperature_celsius, device.power_milliwatts) == (Some(55), Some(350_500))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_nvml_delays_neither_jobs_nor_heartbeats() {
    let ground = Ground::shared("nvml-hangs").await;
    let known = format!("{}=41/55/350500/1073741824", uuid(0, None));
    let environment = [("NVIDIA_FAKE_NVML", known.as_str()), ("NVIDIA_FAKE_NVML_HANGS", "1")];
    let worker = ground.worker_in(&["--nvml", &fake_nvml()], &environment).await;
    let fleet = ground.client().await;
    fleet.submit(kernels::doubles(&[1.0])).await.unwrap().wait(WAIT).await.unwrap();
    ground.poll_log("the missing reading", &worker, "no reading within").await;
    let is_up = |worker: &WorkerRow| {
        let device = &worker.devices[0];
        device.temperature_celsius.is_none() && device.utilization_by.as_deref() == Some("worker")
    };
    ground.poll_worker("heartbeats continue", worker.name(), is_up).await;
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_recorded_late_does_not_make_a_dead_worker_look_alive() {
    let ground = Ground::with_recorder_process("waited").await;
    let recorder = ground.fleet().ledger().unwrap();
    recorder.pause();
    let worker = ground.worker().await;
    poll_until("the first heartbeat waits in the queue", async || ground.messages_in(LEDGER_QUEUE).await > 0).await;
    worker.kill9().await.unwrap();
    let dead_since = Utc::now();
    recorder.resume();
    let was_alive = |row: &WorkerRow| row.heard_at == row.last_seen_at && row.heard_at <= dead_since;
    ground.poll_worker("the heartbeat has its own time", worker.name(), was_alive).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_heartbeats_is_silent_and_its_job_unknown() {
    let ground = Ground::with_recorder_process("silent").await;
    let worker = ground.worker().await;
    let fleet = ground.client().await;
    let mut handle = fleet.submit(busy::until_released()).await.unwrap();
    ground.poll_job("running", handle.id(), |job| job.state == JobState::Running && !job.is_unheard).await;
    ground.poll_worker("a first heartbeat", worker.name(), |worker| !worker.is_silent).await;

    // The recorder stops, so no heartbeat reaches the ledger although the worker is healthy.
    let recorder = ground.fleet().ledger().unwrap();
    recorder.pause();
    ground.poll_worker("three heartbeats are missing", worker.name(), |worker| worker.is_silent).await;
    let folder = tempfile::tempdir().unwrap();
    let told = ground.gpufleet(folder.path(), &["show", &handle.id().to_string()]).await;
    assert!(told.stdout.contains("unknown: its worker fell silent or left"), "{}", told.stdout);
    let listed = ground.gpufleet(folder.path(), &["workers"]).await;
    assert!(listed.stdout.contains("silent"), "{}", listed.stdout);

    recorder.resume();
    ground.poll_worker("a heartbeat arrives again", worker.name(), |worker| !worker.is_silent).await;
    ground.release_jobs();
    let result = handle.wait(WAIT).await.unwrap();
    assert_eq!(result.attempt, 1, "the job did not run again");
    poll_until("the ledger has one attempt", async || ground.final_job(handle.id()).await.attempts.len() == 1).await;
    ground.check_history(1).await;
}
