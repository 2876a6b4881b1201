//! Host programs: `gpufleet run --on-worker` runs a command on a worker's machine, with a whole device. Its output comes while it runs, its
//! files come back, and the command here ends as it does. Whatever ends first, the ledger has one outcome.

mod device;
mod kills;
mod reports;

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use gpufleet::schema::{JobId, JobState, SessionUse};
use gpufleet_ledger::JobDetail;
use gpufleet_local::Signal;
use gpufleet_tests::{Ended, Ground, TestWorker, WAIT, gpufleet_process, poll_until, signal};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdout},
    time::timeout,
};

use crate::confined::{By, Confined};

/// In this time the output of a running program is here.
const OUTPUT_WITHIN: Duration = Duration::from_secs(1);
/// A program whose worker is gone waits once on the retry ladder, in case the worker comes back.
const LOST_WITHIN: Duration = Duration::from_secs(120);

/// A fleet whose worker runs host programs in the environment `plain`.
struct Scene {
    ground: Ground,
    worker: TestWorker,
    environment: TempDir,
}

/// A `gpufleet run --on-worker`.
struct Run {
    command: Child,
    output: Lines<BufReader<ChildStdout>>,
    errors: Lines<BufReader<ChildStderr>>,
}

/// A folder with Python, which every user can read.
fn environment() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(folder.path().join("bin")).unwrap();
    symlink("/usr/bin/python3", folder.path().join("bin/python3")).unwrap();
    folder
}

impl Scene {
    async fn start(label: &str, pool: &str) -> Self {
        let ground = Ground::shared(label).await;
        let environment = environment();
        let worker = ground.worker_with(&arguments(pool, &plain(&environment))).await;
        Self { ground, worker, environment }
    }

    /// Starts a script of the shell on the worker.
    fn start_run(&self, folder: &Path, options: &[&str], script: &str) -> Run {
        let words = [&["run", "--on-worker", "--pool", "gpu", "--env", "plain"], options, &["--", "sh", "-c", script]];
        let mut command = gpufleet_process(folder, &words.concat());
        command.env("GPUFLEET_AMQP_URL", self.ground.node_url());
        let mut command = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(command.stdout.take().unwrap()).lines();
        let errors = BufReader::new(command.stderr.take().unwrap()).lines();
        Run { command, output, errors }
    }

    /// Runs a script of the shell on the worker to its end.
    async fn run(&self, folder: &Path, options: &[&str], script: &str) -> Ended {
        self.start_run(folder, options, script).ended().await
    }

    async fn gpufleet(&self, folder: &Path, arguments: &[&str]) -> Ended {
        self.ground.gpufleet(folder, arguments).await
    }

    /// Returns the host programs in the ledger, the newest first.
    async fn programs(&self) -> Vec<JobId> {
        let jobs = self.ground.jobs(gpufleet_ledger::HistoryFilter::default()).await.unwrap();
        jobs.into_iter().filter(|job| job.is_host_program()).map(|job| job.job_id).collect()
    }

    /// Returns the only host program in the ledger once it has ended.
    async fn only_program(&self) -> JobDetail {
        poll_until("the program is in the ledger", async || self.programs().await.len() == 1).await;
        self.ground.final_job(self.programs().await[0]).await
    }
}

impl Run {
    async fn line(&mut self) -> Option<String> {
        timeout(WAIT, self.output.next_line()).await.expect("the program prints or ends").unwrap()
    }

    async fn error_line(&mut self) -> Option<String> {
        timeout(WAIT, self.errors.next_line()).await.expect("the command prints or ends").unwrap()
    }

    fn signal(&self, number: libc::c_int) {
        signal(self.command.id().expect("it runs"), number);
    }

    async fn ended(self) -> Ended {
        self.ended_within(WAIT).await
    }

    async fn ended_within(mut self, limit: Duration) -> Ended {
        let ended = async {
            let (stdout, stderr) = tokio::join!(rest(&mut self.output), rest(&mut self.errors));
            (self.command.wait().await.unwrap(), stdout, stderr)
        };
        let (status, stdout, stderr) = timeout(limit, ended).await.expect("the command ends");
        Ended { stdout, stderr, ..Ended::from(Output { status, stdout: Vec::new(), stderr: Vec::new() }) }
    }
}

async fn rest<R: tokio::io::AsyncRead + Unpin>(lines: &mut Lines<BufReader<R>>) -> String {
    let mut text = String::new();
    while let Ok(Some(line)) = lines.next_line().await {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn plain(environment: &TempDir) -> String {
    format!("plain={}", environment.path().display())
}

fn arguments<'a>(pool: &'a str, environment: &'a str) -> [&'a str; 4] {
    ["--pool", pool, "--environment", environment]
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_ends_as_the_program_does_and_the_ledger_has_its_exit_code() {
    let scene = Scene::start("program-exit", "gpu:programs=1").await;
    let here = folder();
    let ended = scene.run(here.path(), &["--variable", "SEED=7"], "echo out $SEED; echo err >&2; exit 3").await;
    assert_eq!((ended.code, ended.stdout.as_str()), (3, "out 7\nerr\n"), "{ended:?}");
    assert!(ended.stderr.starts_with("gpufleet: started on EMULATED device (runs on the CPU of worker "), "{ended:?}");
    assert!(ended.stderr.contains("gpufleet: the command exited with 3 after "), "{ended:?}");
    let job = scene.only_program().await;
    let failure = job.job.failure.as_ref().unwrap();
    assert_eq!((failure.code.as_str(), failure.message.as_str()), ("program_failed", "the program exited with 3"));
    let attempt = job.attempts.last().unwrap();
    assert!(matches!(&attempt.session, Some(SessionUse { exit_code: Some(3), .. })), "{attempt:?}");
    assert_eq!(attempt.printf_output.as_ref().map(|output| output.text.as_str()), Some("out 7\nerr\n"));
    let killed = scene.run(here.path(), &["--quiet"], "kill -9 $$").await;
    assert_eq!((killed.code, killed.stderr.as_str()), (128 + 9, ""), "{killed:?}");
    let succeeded = scene.run(here.path(), &["--quiet", "--report", "run.json"], "true").await;
    assert_eq!((succeeded.code, succeeded.stdout.as_str(), succeeded.stderr.as_str()), (0, "", ""), "{succeeded:?}");
    let report: serde_json::Value = serde_json::from_slice(&fs::read(here.path().join("run.json")).unwrap()).unwrap();
    assert_eq!((&report["exit"], &report["command"]["exit_code"]), (&0.into(), &0.into()), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn output_comes_while_the_program_runs_and_ctrl_c_cancels_it() {
    let scene = Scene::start("program-stream", "gpu:programs=1").await;
    let here = folder();
    let mut run = scene.start_run(here.path(), &[], "echo first; sleep 600");
    let started = run.error_line().await.unwrap();
    assert!(started.starts_with("gpufleet: started on EMULATED device"), "{started}");
    let since = Instant::now();
    assert_eq!(run.line().await.as_deref(), Some("first"));
    assert!(since.elapsed() < OUTPUT_WITHIN, "{:?}", since.elapsed());
    run.signal(libc::SIGINT);
    let ended = run.ended().await;
    assert_eq!(ended.code, 130, "{ended:?}");
    assert!(ended.stderr.contains("cancelling the command; another Ctrl-C leaves at once"), "{ended:?}");
    assert_eq!(scene.only_program().await.job.state, JobState::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_output_than_messages_carry_is_complete() {
    let scene = Scene::start("program-output", "gpu:programs=1").await;
    let here = folder();
    let ended = scene.run(here.path(), &["--quiet"], "seq 1 200000").await;
    let expected: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{}", ended.stderr);
    assert!(ended.stdout == expected, "{} bytes of {}", ended.stdout.len(), expected.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_go_with_the_program_and_come_back() {
    let scene = Scene::start("program-files", "gpu:programs=1").await;
    let here = folder();
    fs::create_dir_all(here.path().join("src/deep")).unwrap();
    fs::write(here.path().join("src/deep/x.txt"), "input\n").unwrap();
    fs::write(here.path().join("src/skipped.ckpt"), "large\n").unwrap();
    fs::write(here.path().join("src/.gpufleetignore"), "*.ckpt\n").unwrap();
    let script =
        "test ! -e src/skipped.ckpt && mkdir -p out/a && cp src/deep/x.txt out/a/y.txt && echo other > other.txt";
    let options = ["--upload", "src", "--download", "out/**", "--quiet"];
    let ended = scene.run(here.path(), &options, script).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
    assert_eq!(fs::read_to_string(here.path().join("out/a/y.txt")).unwrap(), "input\n");
    assert!(!here.path().join("other.txt").exists(), "only what was asked for comes back");
    // Another result does not replace the first one, and a program that fails has files too.
    let ended = scene.run(here.path(), &options, "mkdir -p out/a && echo second > out/a/y.txt; exit 4").await;
    assert!(ended.code == 4 && ended.stderr.contains("exists already, so the files are in ./gpufleet-"), "{ended:?}");
    assert_eq!(fs::read_to_string(here.path().join("out/a/y.txt")).unwrap(), "input\n");
    let other = [&options[..], &["--dir", "results"]].concat();
    let ended = scene.run(here.path(), &other, "mkdir -p out/a && echo third > out/a/y.txt").await;
    assert_eq!(
        (ended.code, fs::read_to_string(here.path().join("results/out/a/y.txt")).unwrap().as_str()),
        (0, "third\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_program_is_followed_and_fetched() {
    let scene = Scene::start("program-detached", "gpu:programs=1").await;
    let here = folder();
    let script = "echo begun; sleep 2; mkdir out; echo kept > out/x; echo done; exit 5";
    let ended = scene.run(here.path(), &["--detach", "--download", "out/**"], script).await;
    assert!(ended.code == 0 && ended.stderr.contains("gpufleet logs --follow"), "{ended:?}");
    let id = ended.stdout.trim();
    poll_until("the job is in the ledger", async || scene.programs().await.len() == 1).await;
    let followed = scene.gpufleet(here.path(), &["logs", "--follow", id]).await;
    assert!(followed.code == 4 && followed.stdout.ends_with("done\n"), "{followed:?}");
    // What the program wrote before is in the outcome.
    let has_note = followed.stderr.contains(&format!("`gpufleet logs {id}` prints all of it"));
    assert!(has_note != followed.stdout.starts_with("begun\n"), "{followed:?}");
    let shown = scene.gpufleet(here.path(), &["show", id]).await.ok();
    assert!(shown.stdout.contains("(host program)") && shown.stdout.contains("program exited with 5"), "{shown:?}");
    assert_eq!(scene.gpufleet(here.path(), &["logs", id]).await.ok().stdout, "begun\ndone\n");
    scene.gpufleet(here.path(), &["fetch", id, "--dir", "results"]).await.ok();
    let read = |name: &str| fs::read_to_string(here.path().join("results").join(name)).unwrap();
    assert_eq!((read("out/x").as_str(), read("log").as_str()), ("kept\n", "begun\ndone\n"));
    let again = scene.gpufleet(here.path(), &["rerun", id]).await;
    assert!(again.code == 3 && again.stderr.contains("gpufleet run --on-worker"), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_ends_at_its_time_limit_or_when_it_is_cancelled() {
    let scene = Scene::start("program-limits", "gpu:programs=1,program-time-max=1h").await;
    let here = folder();
    let timed = scene.run(here.path(), &["--time-limit", "1s"], "echo begun; sleep 600").await;
    assert_eq!((timed.code, timed.stdout.as_str()), (5, "begun\n"), "{timed:?}");
    assert!(timed.stderr.contains("time limit of 1s"), "{timed:?}");
    let too_long = scene.run(here.path(), &["--time-limit", "2h"], "true").await;
    assert!(too_long.code == 4 && too_long.stderr.contains("1h"), "{too_long:?}");
    let mut run = scene.start_run(here.path(), &["--quiet"], "echo begun; sleep 600");
    assert_eq!(run.line().await.as_deref(), Some("begun"));
    poll_until("both are in the ledger", async || scene.programs().await.len() == 3).await;
    scene.gpufleet(here.path(), &["cancel", &scene.programs().await[0].to_string()]).await.ok();
    assert_eq!(run.ended().await.code, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pool_or_worker_does_not_offer_is_refused_with_the_reason() {
    let scene = Scene::start("program-refused", "gpu:programs=1").await;
    let here = folder();
    let url = scene.ground.node_url();
    let words = ["run", "--on-worker", "--pool", "default", "--env", "plain", "--", "true"];
    let elsewhere = gpufleet_tests::gpufleet_command(here.path(), &[("GPUFLEET_AMQP_URL", url.as_str())], &words).await;
    assert!(elsewhere.code == 3 && elsewhere.stderr.contains("pool default runs no host programs"), "{elsewhere:?}");
    assert!(elsewhere.stderr.contains("default:programs=1"), "{elsewhere:?}");
    let unknown = scene.run(here.path(), &["--env", "torch"], "true").await;
    assert_eq!(unknown.code, 2, "an environment is named once: {unknown:?}");
    let network = scene.run(here.path(), &["--network"], "true").await;
    assert!(network.code == 4 && network.stderr.contains("program-network"), "{network:?}");
    let missing = scene.run(here.path(), &["--upload", "nothing"], "true").await;
    assert!(missing.code == 3 && missing.stderr.contains("failed to read nothing"), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_environment_and_an_unknown_command_are_named() {
    let scene = Scene::start("program-unknown", "gpu:programs=1").await;
    let here = folder();
    let url = scene.ground.node_url();
    let run = async |environment: &str, command: &str| {
        let words = ["run", "--on-worker", "--pool", "gpu", "--env", environment, "--", command];
        gpufleet_tests::gpufleet_command(here.path(), &[("GPUFLEET_AMQP_URL", url.as_str())], &words).await
    };
    let environment = run("torch", "true").await;
    assert!(
        environment.code == 4 && environment.stderr.contains("no environment \"torch\"; it has plain"),
        "{environment:?}"
    );
    let command = run("plain", "no-such-command").await;
    assert!(command.code == 4 && command.stderr.contains("no-such-command"), "{command:?}");
    assert_eq!(run("plain", "python3").await.code, 0, "the environment's Python reads an empty standard input");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_programs_on_one_device_run_one_after_the_other() {
    let scene = Scene::start("program-turns", "gpu:programs=2").await;
    let here = folder();
    let run = || scene.run(here.path(), &["--quiet"], "echo begin; sleep 1; echo end");
    let (first, second) = tokio::join!(run(), run());
    for ended in [first, second] {
        assert_eq!((ended.code, ended.stdout.as_str()), (0, "begin\nend\n"), "{ended:?}");
    }
    poll_until("both are in the ledger", async || scene.programs().await.len() == 2).await;
    let mut times = Vec::new();
    for job_id in scene.programs().await {
        let job = scene.ground.final_job(job_id).await;
        let attempt = job.attempts.last().unwrap();
        times.push((attempt.started_at.unwrap(), attempt.finished_at.unwrap()));
    }
    times.sort();
    assert!(times[0].1 <= times[1].0, "{times:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_producer_with_the_permission_runs_programs() {
    let confined = Confined::start("programs", By::Functions).await;
    let (environment, here) = (environment(), folder());
    // The worker has the permissions that are printed for its role.
    let plain = plain(&environment);
    let _worker = confined.start_worker_with(&arguments("team-a:programs=1", &plain)).await;
    let words = ["run", "--on-worker", "--pool", "team-a", "--env", "plain", "--quiet", "--", "sh", "-c", "echo here"];
    let run =
        async |url: &str| gpufleet_tests::gpufleet_command(here.path(), &[("GPUFLEET_AMQP_URL", url)], &words).await;
    let refused = run(&confined.url("anna")).await;
    assert_eq!(refused.code, 7, "{refused:?}");
    assert!(refused.stderr.contains("gpufleet permissions --role producer --pool team-a --programs"), "{refused:?}");
    let admin = confined.ground.services().broker().vhost_url(&confined.vhost);
    let allowed = run(&admin).await;
    assert_eq!((allowed.code, allowed.stdout.as_str()), (0, "here\n"), "{allowed:?}");
    confined.end().await;
}
