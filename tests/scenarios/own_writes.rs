//! A command that follows `gpufleet submit` finds what `submit` reported, although the recorder writes the ledger a moment later. A wait
//! survives a restart of the ledger.
//! outlives a restart of the ledger.

use std::{fs, process::Stdio, time::Duration};

use gpufleet_schema::{AttemptState, JobId};
use gpufleet_tests::{Ended, Ground, WAIT, gpufleet_process, kernels};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::timeout,
};

/// A fleet, and a user with a home of its own.
struct Scene {
    ground: Ground,
    home: TempDir,
}

impl Scene {
    /// Returns the command, not started yet. Its state is in the user's home.
    fn command(&self, line: &str) -> Command {
        let mut command = gpufleet_process(self.home.path(), &line.split_whitespace().collect::<Vec<_>>());
        command.env("GPUFLEET_AMQP_URL", self.ground.node_url());
        command.env("GPUFLEET_DATABASE_URL", &self.ground.endpoints().database_url);
        command
    }

    async fn run(&self, line: &str) -> Ended {
        Ended::from(timeout(WAIT, self.command(line).output()).await.expect("every command ends").unwrap())
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

/// The first run exceeds its time limit, the second is mended, and the third exceeds it again.
#[tokio::test(flavor = "multi_thread")]
async fn each_command_has_the_outcome_of_the_latest_run_under_an_id() {
    let scene = Scene { ground: Ground::shared("own-writes-again").await, home: tempfile::tempdir().unwrap() };
    let _worker = scene.ground.worker().await;
    fs::write(scene.home.path().join("endless.ptx"), kernels::ENDLESS).unwrap();
    let id = JobId::new();
    let endless = "submit --ptx endless.ptx --entry endless --cover 1 --block 1 --zeros y=u32[1] --args y";
    let endless = format!("{endless} --time-limit 300ms --id {id}");
    let failed = scene.run(&endless).await;
    assert_eq!(failed.code, 5, "{failed:?}");
    assert_eq!(scene.run(&format!("wait {id}")).await.code, 5);
    scene.run_ok(&format!("{SAXPY} --id {id}")).await;
    scene.run_ok(&format!("fetch {id} --out y=y.npy")).await;
    scene.run_ok(&format!("wait {id}")).await;
    scene.run_ok(&format!("{endless} --detach")).await;
    // The ledger still has the outcome of the second run.
    assert_eq!(scene.run(&format!("wait {id} --timeout 60s")).await.code, 5);
    let detail = scene.ground.final_job(id).await;
    let states: Vec<_> = detail.attempts.iter().map(|attempt| (attempt.state, attempt.superseded)).collect();
    let expected = [(AttemptState::Failed, true), (AttemptState::Succeeded, true), (AttemptState::Failed, false)];
    assert_eq!(states, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_goes_on_after_a_restart_of_postgres_even_if_it_began_without_it() {
    let scene = Scene { ground: Ground::breakable("own-writes-restart").await, home: tempfile::tempdir().unwrap() };
    scene.run_ok(&format!("{SAXPY} --detach")).await;
    let postgres = scene.ground.services().postgres();
    postgres.kill9().await.unwrap();
    let mut command = scene.command("wait @last --timeout 5m");
    let mut waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(waiting.stderr.take().unwrap()).lines();
    // Postgres is down when the wait begins, and is stopped once more during the wait.
    for _ in 0..2 {
        for expected in ["the jobs keep running, and this command asks again", "the ledger answers again"] {
            let line = timeout(WAIT, told.next_line()).await.expect("the command says so").unwrap().unwrap();
            assert!(line.contains(expected), "{line}");
            match postgres.pid() {
                None => postgres.restart().await.unwrap(),
                Some(_) => postgres.kill9().await.unwrap(),
            }
        }
    }
    postgres.restart().await.unwrap();
    let _worker = scene.ground.worker().await;
    let output = timeout(WAIT, waiting.wait_with_output()).await.expect("it ends with the job").unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && printed.contains("succeeded"), "{printed}");
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
