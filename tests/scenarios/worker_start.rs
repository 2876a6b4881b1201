//! A worker that can't start reports why, what to do, and the exit code for it. (faults 21 and 40)

use std::{fs, process::Stdio, time::Duration};

use gpufleet_local::{Signal, programs};
use gpufleet_tests::{Ground, WAIT, busy, poll_until};
use tokio::process::Command;

fn worker(amqp_url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(programs::ours(None, "gpufleet-worker").unwrap());
    command.arg("run").args(arguments).env("GPUFLEET_AMQP_URL", amqp_url).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs a worker until it exits by itself. Returns its exit code and its output.
async fn failing_worker(amqp_url: &str, arguments: &[&str]) -> (i32, String) {
    let output = tokio::time::timeout(WAIT, worker(amqp_url, arguments).output()).await.expect("it ends").unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_driver_is_named_with_advice() {
    let ground = Ground::shared("no-driver").await;
    let missing = ["--cuda", "/nonexistent/libcuda.so.1"];
    let (code, said) = failing_worker(&ground.endpoints().amqp_url, &missing).await;
    assert_eq!(code, 10, "{said}");
    assert!(said.contains("/nonexistent/libcuda.so.1"), "{said}");
}

/// The driver is a named pipe without a writer, which blocks the library loader forever, like a driver that hangs.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_driver_hangs_can_be_stopped() {
    let ground = Ground::shared("hung-driver").await;
    let folder = tempfile::tempdir().unwrap();
    let driver = folder.path().join("libcuda.so.1");
    assert!(Command::new("mkfifo").arg(&driver).status().await.unwrap().success());
    let driver = driver.to_str().unwrap();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut worker =
            worker(&ground.endpoints().amqp_url, &["--cuda", driver]).stderr(Stdio::null()).spawn().unwrap();
        poll_until("a child opens the driver", async || processes_with(driver).len() == 2).await;
        // SAFETY: kill has no memory effects, and the worker has not been waited for.
        assert_eq!(unsafe { libc::kill(worker.id().unwrap() as libc::pid_t, signal) }, 0);
        let ended = tokio::time::timeout(WAIT, worker.wait()).await.expect("it ends").unwrap();
        assert_eq!(ended.code(), Some(0));
        poll_until("the child has exited too", async || processes_with(driver).is_empty()).await;
    }
}

/// Returns the processes that have this argument.
fn processes_with(argument: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let has = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains(argument));
    all.filter(has).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_is_not_there_is_named() {
    let ground = Ground::shared("no-device").await;
    let (code, said) = failing_worker(&ground.endpoints().amqp_url, &["--cuda", "emulated", "--devices", "7"]).await;
    assert_eq!(code, 10, "{said}");
    assert!(said.contains("device 7: this machine has only device 0 (gpufleet emulator"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_a_wrong_password_exits_at_once_and_does_not_show_it() {
    let ground = Ground::shared("worker-refused").await;
    let url = ground.node_url();
    let (login, place) = url.split_once('@').unwrap();
    let url = format!("{}:wrong-password@{place}", login.rsplit_once(':').unwrap().0);
    let started = std::time::Instant::now();
    let (code, said) = failing_worker(&url, &["--cuda", "emulated"]).await;
    assert_eq!(code, 7, "{said}");
    assert!(said.contains("wrong user or password") && !said.contains("wrong-password"), "{said}");
    assert!(started.elapsed() < Duration::from_secs(60), "the worker does not try again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_worker_of_the_same_name_is_refused_and_a_successor_is_not() {
    let (ground, first) = Ground::with_worker("same-name").await;
    let second = ["--cuda", "emulated", "--name", first.name(), "--heartbeat", "1s"];
    let (code, said) = failing_worker(&ground.endpoints().amqp_url, &second).await;
    assert_eq!(code, 2, "{said}");
    assert!(said.contains(&format!("another worker named {:?} is connected", first.name())), "{said}");
    assert!(said.contains("give each worker a name of its own with --name"), "{said}");

    assert_eq!(first.stop(Signal::Kill).await, None);
    let mut successor = worker(&ground.endpoints().amqp_url, &second).stderr(Stdio::null()).spawn().unwrap();
    let fleet = ground.client().await;
    let result = fleet.submit(busy::for_millis(1)).await.unwrap().wait(WAIT).await.unwrap();
    assert_eq!(result.ran_on.unwrap().worker.as_str(), first.name());
    successor.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metrics_address_in_use_is_named_with_advice() {
    let ground = Ground::shared("metrics-taken").await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let arguments = ["--cuda", "emulated", "--metrics", &address];
    let (code, said) = failing_worker(&ground.endpoints().amqp_url, &arguments).await;
    assert_eq!(code, 2, "{said}");
    assert!(said.contains(&format!("failed to serve metrics on {address}: Address already in use")), "{said}");
    assert!(said.contains("choose another address or port with --metrics"), "{said}");
}
