//! A command that follows `gpufleet submit` finds what `submit` reported, although the recorder writes the ledger a moment later, and a wait
//! outlives a restart of the ledger.

use std::time::Duration;

use gpufleet_tests::{Ended, Ground, gpufleet_command};
use tempfile::TempDir;

/// A fleet, and a user with a home of its own.
struct Scene {
    ground: Ground,
    home: TempDir,
}

impl Scene {
    async fn run(&self, line: &str) -> Ended {
        let endpoints = self.ground.endpoints();
        let (amqp_url, database_url) = (self.ground.node_url(), endpoints.database_url.clone());
        let home = self.home.path().to_str().unwrap();
        let environment = [
            ("GPUFLEET_AMQP_URL", amqp_url.as_str()),
            ("GPUFLEET_DATABASE_URL", database_url.as_str()),
            ("XDG_STATE_HOME", home),
        ];
        gpufleet_command(self.home.path(), &environment, &line.split_whitespace().collect::<Vec<_>>()).await
    }

    async fn run_ok(&self, line: &str) -> String {
        let ended = self.run(line).await;
        assert_eq!(ended.code, 0, "{line}: {ended:?}");
        ended.stdout
    }
}

const SAXPY: &str = "submit saxpy --arg a=2 --fill x=f32[4]:3 --zeros y=f32[4] --keep 1h --label own=writes";

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_follows_submit_finds_the_job_and_its_outcome() {
    let scene = Scene { ground: Ground::shared("own-writes").await, home: tempfile::tempdir().unwrap() };
    let _worker = scene.ground.worker().await;
    // The first job starts an executor. The others end before the recorder has written them.
    scene.run_ok(SAXPY).await;
    for command in ["fetch @last --out y=y.npy", "show @last -o json", "logs @last", "report @last", "why @last"] {
        scene.run_ok(SAXPY).await;
        let printed = scene.run_ok(command).await;
        if command.starts_with("show") {
            assert!(printed.contains("\"state\": \"succeeded\""), "{printed}");
        }
    }
    scene.run_ok(SAXPY).await;
    let next = "submit saxpy --arg a=1 --in x=job:@last/y --zeros y=f32[4]";
    scene.run_ok(next).await;
    let all = scene.run_ok("history -o csv").await;
    assert_eq!(all.lines().count(), 1 + 8, "a header and all jobs: {all}");
    let id = scene.run_ok(&format!("{SAXPY} --detach")).await;
    scene.run_ok(&format!("show {id}")).await;
    scene.run_ok("wait @last --timeout 60s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_without_a_recorder_lasts_until_its_timeout_and_the_doctor_says_why() {
    let ground = Ground::with_recorder_process("own-writes-unrecorded").await;
    let scene = Scene { ground, home: tempfile::tempdir().unwrap() };
    let _worker = scene.ground.worker().await;
    scene.run_ok(SAXPY).await;
    scene.ground.fleet().ledger().expect("it runs").kill9().await.unwrap();
    scene.run_ok(&format!("{SAXPY} --detach")).await;
    let started = std::time::Instant::now();
    let late = scene.run("wait @last --timeout 7s").await;
    assert_eq!(late.code, 6, "{late:?}");
    assert!(started.elapsed() >= Duration::from_secs(7), "{late:?}");
    assert!(late.stderr.contains("gpufleet doctor"), "{late:?}");
    let doctor = scene.run("doctor").await;
    assert_eq!(doctor.code, 12, "{doctor:?}");
    assert!(doctor.stdout.contains("none reads the events"), "{doctor:?}");
}
