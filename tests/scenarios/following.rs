//! What a person sees of a job that runs: `submit`, `wait` and `logs` with `--follow` print what its kernels print, from any machine. In the
//! end it is the whole text, and the exit code is that of the job.

use std::{fs, process::Stdio};

use gpufleet_local::Signal;
use gpufleet_schema::{JobId, JobState};
use gpufleet_tests::{Ended, Ground, TestWorker, WAIT, gpufleet_process, kernels::said, poll_until};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader},
    process::Child,
    time::timeout,
};

use crate::confined::{By, Confined};

const SAY: &str = include_str!("../../worker/tests/executor/say.ptx");
const WAITS: &str = include_str!("../harness/ptx/waits.ptx");
/// The lines that the job prints before it waits for its release, and after it.
const LINES: u32 = 3;
const RELEASED_NANOS: u64 = 1_000_000_000_000_000_000;

/// A folder with a task that prints, waits until [`Ground::release_jobs`], and prints again.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (_, waits) = WAITS.split_once(".address_size 64").unwrap();
    let launch = |entry: &str, args: Value| json!({ "entry": entry, "grid": { "blocks": [1] }, "block": { "threads": [1] }, "args": args });
    let says = |mark: u32| launch("say", json!([{ "u32": mark }, { "u32": LINES }, { "u32": 0 }]));
    let task = json!({
        "program": { "ptx": format!("{SAY}\n{waits}") },
        "buffers": [{ "name": "y", "dtype": "u32", "shape": [1] }],
        "launches": [
            says(1),
            launch("waits_for_release", json!([{ "buffer": "y" }, { "u64": RELEASED_NANOS }])),
            says(2),
        ],
    });
    fs::write(folder.path().join("task.json"), task.to_string()).unwrap();
    folder
}

fn whole() -> String {
    said(1, LINES) + &said(2, LINES)
}

/// A command that runs.
struct Running {
    child: Child,
    stdout: BufReader<Box<dyn AsyncRead + Unpin>>,
    stderr: BufReader<Box<dyn AsyncRead + Unpin>>,
}

impl Running {
    fn start(ground: &Ground, folder: &TempDir, arguments: &[&str]) -> Self {
        Self::start_as(&ground.endpoints().amqp_url, ground, folder, arguments)
    }

    /// Starts the command as the user of a URL.
    fn start_as(url: &str, ground: &Ground, folder: &TempDir, arguments: &[&str]) -> Self {
        let mut command = gpufleet_process(folder.path(), arguments);
        command.env("GPUFLEET_AMQP_URL", url).env("GPUFLEET_DATABASE_URL", &ground.endpoints().database_url);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout: Box<dyn AsyncRead + Unpin> = Box::new(child.stdout.take().unwrap());
        let stderr: Box<dyn AsyncRead + Unpin> = Box::new(child.stderr.take().unwrap());
        Self { child, stdout: BufReader::new(stdout), stderr: BufReader::new(stderr) }
    }

    /// Reads lines of standard output until they are this text. The command must still run.
    async fn reads(&mut self, text: &str) {
        let mut read = String::new();
        while read.len() < text.len() {
            let bytes = timeout(WAIT, self.stdout.read_line(&mut read)).await.expect("it prints while the job runs");
            assert_ne!(bytes.unwrap(), 0, "it ended after {read:?}");
        }
        assert_eq!(read, text);
        assert_eq!(self.child.try_wait().unwrap(), None);
    }

    /// Reads standard error up to a line with this part.
    async fn reads_error(&mut self, part: &str) -> String {
        let mut line = String::new();
        while !line.contains(part) {
            line.clear();
            let bytes = timeout(WAIT, self.stderr.read_line(&mut line)).await.expect("it notes what it waits for");
            assert_ne!(bytes.unwrap(), 0, "it ended without {part:?}");
        }
        line
    }

    /// The exit code, and the rest of what it prints.
    async fn end(mut self) -> Ended {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let read = async {
            self.stdout.read_to_string(&mut stdout).await.unwrap();
            self.stderr.read_to_string(&mut stderr).await.unwrap();
            self.child.wait().await.unwrap().code().unwrap_or(-1)
        };
        let code = timeout(WAIT, read).await.expect("it ends with the job");
        Ended { code, stdout, stderr }
    }
}

async fn detached(ground: &Ground, folder: &TempDir) -> JobId {
    let submitted = ground.gpufleet(folder.path(), &["submit", "-f", "task.json", "--detach"]).await.ok();
    submitted.stdout.trim().parse().unwrap()
}

async fn recorded_text(ground: &Ground, job: JobId) -> String {
    ground.final_job(job).await.attempts.last().unwrap().printf_output.clone().unwrap().text
}

/// A fleet whose worker has stopped.
async fn unserved(label: &str) -> (Ground, TempDir) {
    let (ground, worker) = Ground::with_worker(label).await;
    worker.stop(Signal::Terminate).await;
    (ground, folder())
}

/// Starts a worker once a command follows a job, so that it misses nothing.
async fn serve_followed(ground: &Ground) -> TestWorker {
    let bindings = "length(rabbit_binding:list_for_source(rabbit_misc:r(@, exchange, <<\"gpufleet.v1.progress\">>))).";
    poll_until("the job is followed", async || ground.erlang(bindings).await != "0").await;
    ground.worker().await
}

#[tokio::test(flavor = "multi_thread")]
async fn submit_prints_while_the_job_runs_and_the_report_after_the_whole_text() {
    let (ground, folder) = unserved("following-submit").await;
    let id = JobId::new();
    let line = ["submit", "-f", "task.json", "--follow", "--id", &id.to_string()];
    let mut submit = Running::start(&ground, &folder, &line);
    submit.reads_error("no worker serves pool default").await;
    let _worker = serve_followed(&ground).await;
    submit.reads(&said(1, LINES)).await;
    ground.release_jobs();
    let ended = submit.end().await.ok();
    let (rest, report) = ended.stdout.split_at(said(2, LINES).len());
    assert_eq!(said(1, LINES) + rest, recorded_text(&ground, id).await);
    assert!(report.starts_with(&format!("job {id} succeeded")) && !report.contains("printed by"), "{report}");
    assert_eq!(ended.stderr, "");

    // JSON without --follow is one object, as ever; with it, one on each line.
    let text = |json: &Value| json["printf_output"]["text"].as_str().unwrap().to_owned();
    let object = ground.gpufleet(folder.path(), &["submit", "-f", "task.json", "-o", "json"]).await.json();
    let lines = ground.gpufleet(folder.path(), &["submit", "-f", "task.json", "-o", "json", "--follow"]).await.ok();
    let last: Value = serde_json::from_str(lines.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((text(&object), text(&last)), (whole(), whole()));
    ground.check_history(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_follows_a_job_from_another_client_from_the_queue_to_its_end() {
    let (ground, folder) = unserved("following-logs").await;
    let id = detached(&ground, &folder).await;
    ground.poll_job("queued", id, |job| job.state == JobState::Queued).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let mut logs = Running::start(&ground, &elsewhere, &["logs", "--follow", &id.to_string()]);
    logs.reads_error(&format!("job {id} waits in the queue of pool default")).await;
    let _worker = serve_followed(&ground).await;
    logs.reads(&said(1, LINES)).await;
    ground.release_jobs();
    let ended = logs.end().await.ok();
    assert_eq!((ended.stdout, ended.stderr), (said(2, LINES), String::new()));
    assert_eq!(recorded_text(&ground, id).await, whole());

    // A job that has ended prints its text at once; here the last one of the user.
    let again = ground.gpufleet(folder.path(), &["logs", "-f", "@last"]).await.ok();
    assert_eq!((again.stdout, again.stderr), (whole(), String::new()));
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_no_worker_of_this_release_has_seen_yet_is_followed_as_soon_as_one_starts() {
    let (ground, folder) = (Ground::shared("following-first").await, folder());
    ground.declare_pools(&["default"]).await;
    let mut submit = Running::start(&ground, &folder, &["submit", "-f", "task.json", "--follow", "-o", "json"]);
    submit.reads_error("no worker of this vhost publishes it yet").await;
    let _worker = ground.worker().await;
    let mut update = String::new();
    timeout(WAIT, submit.stdout.read_line(&mut update)).await.expect("it asks again").unwrap();
    assert!(update.starts_with("{\"progress\":"), "{update}");
    ground.release_jobs();
    submit.end().await.ok();
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_prints_updates_as_lines_of_json_and_the_result_last() {
    let (ground, folder) = (Ground::shared("following-wait").await, folder());
    let _worker = ground.worker().await;
    let id = detached(&ground, &folder).await;
    let mut wait = Running::start(&ground, &folder, &["wait", &id.to_string(), "-o", "json", "--follow"]);
    let mut first = String::new();
    timeout(WAIT, wait.stdout.read_line(&mut first)).await.expect("there is progress").unwrap();
    let first: Value = serde_json::from_str(&first).unwrap();
    let update = &first["progress"];
    assert_eq!((&update["job_id"], &update["attempt"], &update["stage"]), (&json!(id), &json!(1), &json!("running")));
    assert_eq!(update["launches"]["total"], 3);
    assert!(update["counter"].is_null() && update["bytes"].is_null(), "{update}");
    ground.release_jobs();
    let ended = wait.end().await.ok();
    let lines: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (result, updates) = lines.split_last().unwrap();
    assert!(updates.iter().all(|line| line["progress"].is_object()), "{updates:?}");
    assert_eq!((&result[0]["job_id"], &result[0]["state"]), (&json!(id), &json!("succeeded")));

    let several = ground.gpufleet(folder.path(), &["wait", &id.to_string(), "@last", "--follow"]).await;
    assert!(several.code == 2 && several.stderr.contains("--follow shows one job"), "{several:?}");
    let people = ground.gpufleet(folder.path(), &["wait", &id.to_string(), "--follow"]).await.ok();
    assert_eq!(people.stdout, format!("{}{id}  succeeded\n", whole()));
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_ends_the_command_with_its_exit_code() {
    let (ground, folder) = unserved("following-cancelled").await;
    let id = detached(&ground, &folder).await;
    let mut logs = Running::start(&ground, &folder, &["logs", "--follow", "--quiet", &id.to_string()]);
    let _worker = serve_followed(&ground).await;
    logs.reads(&said(1, LINES)).await;
    ground.gpufleet(folder.path(), &["cancel", &id.to_string()]).await.ok();
    let ended = logs.end().await;
    assert_eq!((ended.code, ended.stdout.as_str()), (5, ""), "{ended:?}");
    assert!(ended.stderr.starts_with(&format!("{id}  cancelled: ")), "{ended:?}");
    assert!(ended.stderr.contains("it had finished 1 of 3 launches"), "{ended:?}");
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_attempt_starts_over_and_says_so() {
    let (ground, folder) = unserved("following-again").await;
    let mut submit = Running::start(&ground, &folder, &["submit", "-f", "task.json", "--follow"]);
    let worker = serve_followed(&ground).await;
    submit.reads(&said(1, LINES)).await;
    worker.kill_executor().await;
    submit.reads_error("began; the job starts over").await;
    submit.reads(&said(1, LINES)).await;
    ground.release_jobs();
    let ended = submit.end().await.ok();
    assert!(ended.stdout.starts_with(&said(2, LINES)) && ended.stdout.contains(" on attempt 2 on "), "{ended:?}");
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_permission_for_progress_a_command_goes_on_and_prints_the_text_at_the_end() {
    let confined = Confined::start("following-refused", By::Functions).await;
    let (folder, anna) = (folder(), confined.user("anna"));
    // As it was before there was progress.
    let arguments = [&anna, &confined.vhost, "gpufleet.v1.progress", "^$", "^$", "scenario"];
    let arguments = arguments.map(|text| format!("<<\"{text}\">>")).join(", ");
    confined.ground.erlang(&format!("ok = rabbit_auth_backend_internal:set_topic_permissions({arguments}).")).await;
    let line = ["submit", "-f", "task.json", "--pool", "team-a", "--follow"];
    let mut submit = Running::start_as(&confined.url("anna"), &confined.ground, &folder, &line);
    let warning = submit.reads_error("failed to follow progress").await;
    assert!(warning.contains("gpufleet permissions"), "{warning}");
    confined.ground.release_jobs();
    let ended = submit.end().await.ok();
    assert!(ended.stdout.starts_with(&whole()) && ended.stderr.is_empty(), "{ended:?}");
    confined.end().await;
}
