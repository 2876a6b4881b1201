//! Sessions: `gpufleet run` gives an unmodified CUDA program here a device of a worker. Whatever ends first, the program, the command, the
//! session's process, the worker or a limit: the ledger has one outcome, the memory is free again, and no process is left.

use std::{
    ffi::OsString,
    path::PathBuf,
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use gpufleet::{
    Fleet, Job,
    schema::{
        AttemptState, JobId, JobState,
        topology::{UNCLAIMED_QUEUE, reply_queue},
    },
};
use gpufleet_ledger::{HistoryFilter, JobDetail};
use gpufleet_tests::{
    Ended, Ground, Proxy, Silence, TestWorker, WAIT, busy, gpufleet_process, kernels, poll_until, signal,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpufleet-cuda-program");
const TERMINAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/foreign/terminal.py");
const COUNTS_SIGNALS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/foreign/counts_signals.py");
/// The memory of a lease.
const LEASE: u64 = 64 << 20;
/// Arguments of a worker that takes sessions.
const TAKES_SESSIONS: [&str; 4] = ["--pool", "gpu:sessions=2,session-memory=60%", "--session-listen", "127.0.0.1:0"];
/// In this time after the end of a session its memory is free.
const FREE_WITHIN: Duration = Duration::from_secs(10);

/// What a program does when something ends: nothing, a launch, a bulk copy, and a function that the driver calls.
const STATES: [&str; 4] = ["hold 1048576", "endless", "copies", "callback"];

/// A `gpufleet run` with the test's program.
struct Run {
    command: Child,
    output: Lines<BufReader<ChildStdout>>,
    _home: TempDir,
}

impl Run {
    fn start(ground: &Ground, options: &str, program: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut command = run_command(ground, &home, options, program);
        let mut command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(command.stdout.take().unwrap()).lines();
        Self { command, output, _home: home }
    }

    /// Starts a program and waits until it says that it has begun.
    async fn begun(ground: &Ground, options: &str, program: &str) -> Self {
        let mut run = Self::start(ground, options, program);
        if run.line().await.is_none() {
            panic!("the program did not begin: {:?}", run.ended().await);
        }
        run
    }

    /// Returns the program's next line; none if it has ended.
    async fn line(&mut self) -> Option<String> {
        timeout(WAIT, self.output.next_line()).await.expect("the program prints or ends").unwrap()
    }

    /// Returns the process of `gpufleet run`.
    fn pid(&self) -> u32 {
        self.command.id().expect("it runs")
    }

    /// Returns the process of the program.
    fn program(&self) -> u32 {
        let command = self.pid();
        let children = gpufleet_tests::children(command);
        children
            .into_iter()
            .find(|pid| gpufleet_tests::command_line(*pid).contains("cuda-program"))
            .expect("it has begun")
    }

    /// Has the program go on, and waits for the end of the command.
    async fn ended(mut self) -> Ended {
        drop(self.command.stdin.take());
        let mut stderr = String::new();
        let ended = async {
            let mut output = self.command.stderr.take().unwrap();
            output.read_to_string(&mut stderr).await.unwrap();
            self.command.wait().await.unwrap()
        };
        let status = timeout(WAIT, ended).await.expect("the command ends");
        let mut stdout = String::new();
        while let Ok(Some(line)) = self.output.next_line().await {
            stdout.push_str(&line);
            stdout.push('\n');
        }
        Ended { stdout, stderr, ..Ended::from(Output { status, stdout: Vec::new(), stderr: Vec::new() }) }
    }

    async fn goes_on(&mut self) {
        self.command.stdin.as_mut().unwrap().write_all(b"\n").await.unwrap();
    }
}

fn run_command(ground: &Ground, home: &TempDir, options: &str, program: &str) -> Command {
    let memory = if options.contains("--memory") { String::new() } else { format!("--memory {LEASE}B") };
    let pool = if options.contains("--pool") { "" } else { "--pool gpu" };
    let words = format!("run {memory} {pool} {options} -- {PROGRAM} {program}");
    let mut command = gpufleet_process(home.path(), &words.split_whitespace().collect::<Vec<_>>());
    command.envs(environment(ground));
    command
}

fn environment(ground: &Ground) -> [(&'static str, OsString); 3] {
    [
        ("GPUFLEET_AMQP_URL", ground.node_url().into()),
        ("GPUFLEET_DATABASE_URL", ground.endpoints().database_url.clone().into()),
        // The programs are where the tests are built, and so is the library.
        ("GPUFLEET_SESSION_LIBRARY", library().into()),
    ]
}

fn library() -> PathBuf {
    gpufleet_local::programs::ours(None, "libgpufleet_driver.so").unwrap()
}

/// Runs a program to its end.
async fn run(ground: &Ground, options: &str, program: &str) -> Ended {
    Run::start(ground, options, program).ended().await
}

async fn with_sessions(label: &str) -> (Ground, TestWorker) {
    let ground = Ground::shared(label).await;
    let worker = ground.worker_with(&TAKES_SESSIONS).await;
    (ground, worker)
}

/// Returns the sessions in the ledger, the newest first.
async fn sessions(ground: &Ground) -> Vec<JobId> {
    let jobs = ground.jobs(HistoryFilter::default()).await.unwrap();
    jobs.into_iter().filter(|job| job.program.as_deref() == Some("session")).map(|job| job.job_id).collect()
}

/// Returns the only session in the ledger once it has ended.
async fn only_session(ground: &Ground) -> JobDetail {
    poll_until("the session is in the ledger", async || sessions(ground).await.len() == 1).await;
    ground.final_job(sessions(ground).await[0]).await
}

fn failure(job: &JobDetail) -> (&str, &str) {
    let failure = job.job.failure.as_ref().unwrap_or_else(|| panic!("{job:?}"));
    (&failure.code, &failure.message)
}

/// Returns the processes of the worker's sessions.
fn gates(worker: &TestWorker) -> Vec<u32> {
    let is_gate = |pid: &u32| gpufleet_tests::command_line(*pid).contains("gpufleet-worker session");
    gpufleet_tests::children(worker.pid()).into_iter().filter(is_gate).collect()
}

/// Asserts that all of the device's memory for sessions is free soon, and that no process of a session is left.
async fn assert_free(ground: &Ground, worker: &TestWorker) {
    let since = Instant::now();
    poll_until("no process of a session is left", async || gates(worker).is_empty()).await;
    // More than half of what all sessions may have.
    let ended = run(ground, "--memory 1GiB", "double").await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(since.elapsed() < FREE_WITHIN + Duration::from_secs(10), "{:?}", since.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_runs_on_a_device_that_it_does_not_have() {
    let (ground, worker) = with_sessions("session").await;
    let ended = run(&ground, "--name first --label kind=session", "double").await;
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "doubled\n"), "{ended:?}");
    assert!(ended.stderr.starts_with("gpufleet: EMULATED device (runs on the CPU of worker "), "{}", ended.stderr);
    assert!(ended.stderr.contains("session ended after"), "{}", ended.stderr);
    let job = only_session(&ground).await;
    assert_eq!((job.job.state, job.job.kernel.as_deref()), (JobState::Succeeded, Some("gpufleet-cuda-program double")));
    let attempt = job.attempts.last().unwrap();
    let used = attempt.session.as_ref().expect("the attempt says what the session did");
    assert!(used.calls > 5 && used.waits > 0 && used.processes == 1 && used.exit_code == Some(0), "{used:?}");
    assert!(used.memory_bytes_peak >= 256, "{used:?}");
    assert_free(&ground, &worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_ends_as_the_program_does() {
    let (ground, _worker) = with_sessions("session-exit").await;
    let ended = run(&ground, "--quiet", "exit 7").await;
    assert_eq!((ended.code, ended.stderr.as_str()), (7, ""), "{ended:?}");
    let job = only_session(&ground).await;
    assert_eq!(failure(&job), ("program_failed", "the program exited with 7"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_has_the_memory_of_its_lease_and_not_a_byte_more() {
    let (ground, worker) = with_sessions("session-memory").await;
    let memory = run(&ground, "--quiet", "memory").await;
    let total = memory.stdout.split_whitespace().nth(1).map(str::to_owned);
    assert_eq!(total.as_deref(), Some(LEASE.to_string().as_str()), "{memory:?}");
    assert_eq!(run(&ground, "--quiet", &format!("alloc {LEASE}")).await.code, 0);
    let over = run(&ground, "--quiet", &format!("alloc {}", LEASE + 1)).await;
    assert!(over.code == 1 && over.stderr.contains("Failed(\"cuMemAlloc_v2\", 2)"), "{over:?}");
    assert_free(&ground, &worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_of_the_program_is_the_outcome_of_its_session() {
    let (ground, worker) = with_sessions("session-fault").await;
    let ended = run(&ground, "--quiet", "fault").await;
    assert_eq!(ended.code, 1, "{ended:?}");
    let job = only_session(&ground).await;
    assert_eq!(failure(&job).0, "kernel_fault", "{job:?}");
    assert_free(&ground, &worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_killed_leaves_nothing_behind() {
    let (ground, worker) = with_sessions("session-killed").await;
    for program in STATES {
        let run = Run::begun(&ground, "--quiet", program).await;
        signal(run.program(), libc::SIGKILL);
        let ended = run.ended().await;
        assert_eq!(ended.code, 128 + 9, "{program}: {ended:?}");
        poll_until("no process of a session is left", async || gates(&worker).is_empty()).await;
    }
    poll_until("all sessions", async || sessions(&ground).await.len() == STATES.len()).await;
    for session in sessions(&ground).await {
        let job = ground.final_job(session).await;
        assert_eq!(failure(&job), ("program_failed", "the program was ended by signal 9"));
    }
    assert_free(&ground, &worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_killed_loses_its_session() {
    let (ground, worker) = with_sessions("session-client").await;
    for program in STATES {
        let mut run = Run::begun(&ground, "--quiet", program).await;
        let child = run.program();
        run.command.kill().await.unwrap();
        poll_until("no process of a session is left", async || gates(&worker).is_empty()).await;
        signal(child, libc::SIGKILL);
    }
    poll_until("all sessions", async || sessions(&ground).await.len() == STATES.len()).await;
    for session in sessions(&ground).await {
        assert_eq!(failure(&ground.final_job(session).await).0, "client_lost");
    }
    assert_free(&ground, &worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_process_dies_is_lost_and_nothing_runs_again() {
    let (ground, worker) = with_sessions("session-gate").await;
    for program in STATES {
        let run = Run::begun(&ground, "--quiet", program).await;
        let [gate] = gates(&worker)[..] else { panic!("there is one session") };
        let engines = gpufleet_tests::children(gate);
        signal(gate, libc::SIGKILL);
        let ended = run.ended().await;
        assert_eq!(ended.code, 10, "{program}: {ended:?}");
        poll_until("the engine has ended", async || !engines.iter().any(|pid| gpufleet_tests::is_alive(*pid))).await;
    }
    poll_until("all sessions", async || sessions(&ground).await.len() == STATES.len()).await;
    for session in sessions(&ground).await {
        let job = ground.final_job(session).await;
        assert_eq!((failure(&job).0, job.attempts.len()), ("executor_lost", 1));
    }
    assert_free(&ground, &worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_when_it_is_cancelled_or_reaches_a_limit() {
    let (ground, worker) = with_sessions("session-limits").await;
    let run = Run::begun(&ground, "--quiet", "hold 1048576").await;
    poll_until("the session is in the ledger", async || sessions(&ground).await.len() == 1).await;
    let home = tempfile::tempdir().unwrap();
    ground.gpufleet(home.path(), &["cancel", &sessions(&ground).await[0].to_string()]).await.ok();
    assert_eq!(run.ended().await.code, 5);
    assert_eq!(only_session(&ground).await.job.state, JobState::Cancelled);
    let timed = Run::begun(&ground, "--time-limit 2s", "endless").await.ended().await;
    assert!(timed.code == 5 && timed.stderr.contains("time limit of 2s"), "{timed:?}");
    let idle = Run::begun(&ground, "--idle-limit 2s", "hold 1048576").await;
    poll_until("it is idle for too long", async || gates(&worker).is_empty()).await;
    let idle = idle.ended().await;
    assert!(idle.code == 5 && idle.stderr.contains("idle for 2s"), "{idle:?}");
    assert_free(&ground, &worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_more_session_than_a_worker_takes_waits_for_its_turn() {
    let (ground, _worker) = with_sessions("session-turns").await;
    let mut first = Run::begun(&ground, "--quiet", "hold 1048576").await;
    let second = Run::begun(&ground, "--quiet", "hold 1048576").await;
    let mut third = Run::start(&ground, "", "double");
    let mut waiting = String::new();
    let mut stderr = BufReader::new(third.command.stderr.take().unwrap());
    timeout(WAIT, stderr.read_line(&mut waiting)).await.expect("it says that it waits").unwrap();
    assert!(waiting.starts_with("gpufleet: waiting in pool gpu"), "{waiting}");
    first.goes_on().await;
    assert_eq!(first.ended().await.code, 0);
    assert_eq!(third.line().await.as_deref(), Some("doubled"));
    assert_eq!(second.ended().await.code, 0);
    assert!(timeout(WAIT, third.command.wait()).await.unwrap().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_lease_starts_beside_a_stream_of_small_jobs() {
    let (ground, _worker) = with_sessions("session-stream").await;
    let fleet = ground.client().await;
    let streaming = tokio::spawn(async move {
        let mut jobs = 0_u32;
        let until = Instant::now() + Duration::from_secs(60);
        while Instant::now() < until {
            let batch = fleet.submit_many((0..32).map(|_| kernels::doubles_in(128 << 20))).await;
            for handle in batch {
                drop(handle.unwrap().wait(WAIT).await);
                jobs += 1;
            }
        }
        jobs
    });
    let since = Instant::now();
    let ended = run(&ground, "--quiet --memory 1200MiB", "double").await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    streaming.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_without_sessions_takes_none() {
    let (ground, _worker) = Ground::with_worker("session-none").await;
    let ended = run(&ground, "--pool default", "double").await;
    assert!(ended.code == 3 && ended.stderr.contains("takes no sessions"), "{ended:?}");
    let missing =
        run_command(&ground, &tempfile::tempdir().unwrap(), "--no-such-option", "double").output().await.unwrap();
    assert_eq!(missing.status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_drains_ends_its_sessions_after_the_grace_period() {
    let ground = Ground::shared("session-drain").await;
    let worker = ground.worker_with(&[&TAKES_SESSIONS[..], &["--grace", "2s"]].concat()).await;
    let run = Run::begun(&ground, "", "hold 1048576").await;
    assert_eq!(worker.stop(gpufleet_local::process::Signal::Terminate).await, Some(0));
    let ended = run.ended().await;
    assert!(ended.code == 10 && ended.stderr.contains("the worker was stopped"), "{ended:?}");
    assert_eq!(failure(&only_session(&ground).await).0, "executor_lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_killed_takes_its_session_with_it_and_another_tells_the_ledger() {
    let (ground, mut worker) = with_sessions("session-worker").await;
    for program in STATES {
        let run = Run::begun(&ground, "--quiet", program).await;
        worker.kill9().await.unwrap();
        worker = ground.worker_with(&TAKES_SESSIONS).await;
        let ended = run.ended().await;
        assert_eq!(ended.code, 10, "{program}: {ended:?}");
    }
    poll_until("all sessions", async || sessions(&ground).await.len() == STATES.len()).await;
    for session in sessions(&ground).await {
        assert_eq!(failure(&ground.final_job(session).await).0, "executor_lost");
    }
    assert_free(&ground, &worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_outlives_a_restart_of_the_broker() {
    let ground = Ground::breakable("session-broker").await;
    let worker = ground.worker_with(&TAKES_SESSIONS).await;
    let mut idle = Run::begun(&ground, "--quiet", "hold 1048576").await;
    let working = Run::begun(&ground, "--quiet", "copies").await;
    ground.services().broker().kill9().await.unwrap();
    ground.services().broker().restart().await.unwrap();
    idle.goes_on().await;
    let ended = idle.ended().await;
    assert_eq!(ended.code, 0, "{ended:?}");
    signal(working.program(), libc::SIGKILL);
    assert_eq!(working.ended().await.code, 128 + 9);
    poll_until("both sessions", async || sessions(&ground).await.len() == 2).await;
    let mut states = Vec::new();
    for session in sessions(&ground).await {
        states.push(ground.final_job(session).await.job.state);
    }
    assert!(states.contains(&JobState::Succeeded) && states.contains(&JobState::Failed), "{states:?}");
    assert_free(&ground, &worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_with_nvidias_runtime_gets_a_line_and_an_exit_code_of_its_own() {
    let (ground, _worker) = with_sessions("session-runtime").await;
    let ended = run(&ground, "--quiet", "runtime").await;
    let line = "gpufleet: this program contains NVIDIA's CUDA runtime";
    assert!(ended.code == 13 && ended.stderr.contains(line), "{ended:?}");
    assert_eq!(failure(&only_session(&ground).await).0, "program_failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_neighbour_that_floods_faults_or_stops_changes_no_result() {
    let (ground, worker) = with_sessions("session-tenants").await;
    let others = async |ground: &Ground| {
        for _ in 0..5 {
            let ended = run(ground, "--quiet", "work 200").await;
            assert_eq!(ended.code, 0, "{ended:?}");
        }
        assert_eq!(run(ground, "--quiet", "fault").await.code, 1, "a fault of the other is its own");
        assert_eq!(run(ground, "--quiet", "double").await.code, 0);
    };
    let flooding = Run::begun(&ground, "--quiet", "flood").await;
    others(&ground).await;
    // The session still takes calls, and its program reads no answers.
    signal(flooding.program(), libc::SIGSTOP);
    others(&ground).await;
    signal(flooding.program(), libc::SIGKILL);
    assert_eq!(flooding.ended().await.code, 128 + 9);
    assert_free(&ground, &worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_processes_as_sessions_use_the_device_at_a_time() {
    let (ground, _worker) = with_sessions("session-several").await;
    let home = tempfile::tempdir().unwrap();
    let script = format!("{PROGRAM} double & first=$!; {PROGRAM} double && wait $first");
    let arguments = ["run", "--memory", "64MiB", "--pool", "gpu", "--sessions", "2", "--", "bash", "-c", &script];
    let ended = ground.gpufleet(home.path(), &arguments).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "doubled\ndoubled\n"), "{ended:?}");
    // The first process has the session as soon as it prints its line.
    let first = format!("exec 3< <(exec {PROGRAM} endless); first=$!; read -r -u 3 line");
    let script = format!("{first}; {PROGRAM} double; code=$?; kill $first; exit $code");
    let arguments = ["run", "--memory", "64MiB", "--pool", "gpu", "--", "bash", "-c", &script];
    let ended = ground.gpufleet(home.path(), &arguments).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stderr.contains("is the second that uses the GPU, but this run has 1 session"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_go_on_beside_a_session_that_works() {
    let (ground, _worker) = with_sessions("session-beside").await;
    let session = Run::begun(&ground, "--quiet", "work 3000").await;
    let fleet = ground.client().await;
    let mut job = fleet.submit(busy::for_millis(100)).await.unwrap();
    busy::assert_done(&job.wait(WAIT).await.unwrap().outputs);
    assert_eq!(session.ended().await.code, 0);
    let job = only_session(&ground).await;
    let used = job.attempts.last().unwrap().session.clone().unwrap();
    assert!(used.busy_us > 0 && job.attempts.last().unwrap().charged_us.is_some(), "{used:?}");
}

/// Returns what `gpufleet pools` says of the pool `gpu`, as JSON and as its line in the table.
async fn pool_gpu(ground: &Ground) -> (Value, String) {
    let home = tempfile::tempdir().unwrap();
    let pools = ground.gpufleet(home.path(), &["pools", "-o", "json"]).await.json();
    let pool = pools.as_array().unwrap().iter().find(|pool| pool["pool"] == "gpu").cloned().unwrap_or_default();
    let table = ground.gpufleet(home.path(), &["pools"]).await.ok().stdout;
    (pool, table.lines().find(|line| line.starts_with("gpu ")).unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_show_the_open_sessions_and_their_memory() {
    let (ground, _worker) = with_sessions("session-pools").await;
    let session = Run::begun(&ground, "--quiet", "hold 1048576").await;
    poll_until("a heartbeat counts the session", async || pool_gpu(&ground).await.0["sessions_open"] == 1).await;
    let (pool, line) = pool_gpu(&ground).await;
    assert_eq!((&pool["sessions_max"], &pool["session_bytes"]), (&Value::from(2), &Value::from(LEASE)), "{pool}");
    assert!(pool["session_bytes_max"].as_u64() > Some(1 << 30), "{pool}");
    assert!(line.contains("1 of 2, 64.0 MiB of 1."), "{line}");
    assert_eq!(session.ended().await.code, 0);
    poll_until("a heartbeat counts no session", async || pool_gpu(&ground).await.0["sessions_open"] == 0).await;
    assert_eq!(pool_gpu(&ground).await.0["session_bytes"], 0);
}

/// Waits until `gpufleet why` names this reason for the only session that waits. Returns the text.
async fn waits_for(ground: &Ground, wanted: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let mut text = String::new();
    poll_until(&format!("the reason is {wanted}"), async || {
        let queued = HistoryFilter { states: vec![JobState::Queued], ..HistoryFilter::default() };
        let [session] = &ground.jobs(queued).await.unwrap()[..] else { return false };
        let printed = ground.gpufleet(home.path(), &["why", &session.job_id.to_string(), "-o", "json"]).await.json();
        println!("{printed}");
        text = printed["reasons"][0]["text"].as_str().unwrap_or_default().to_owned();
        printed["reasons"][0]["reason"] == wanted
    })
    .await;
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn why_says_what_a_session_waits_for() {
    let (ground, worker) = with_sessions("session-why").await;
    let first = Run::begun(&ground, "--quiet --memory 1GiB", "hold 1048576").await;
    let large = Run::start(&ground, "--quiet --memory 1GiB", "double");
    let text = waits_for(&ground, "memory").await;
    assert!(text.contains("it asks for 1.00 GiB; open sessions and running jobs leave at most "), "{text}");
    assert_eq!(first.ended().await.code, 0);
    assert_eq!(large.ended().await.code, 0);

    let holding = [Run::begun(&ground, "--quiet", "hold 1").await, Run::begun(&ground, "--quiet", "hold 1").await];
    let next = Run::start(&ground, "--quiet", "double");
    let text = waits_for(&ground, "sessions_open").await;
    assert!(text.contains("2 of 2 sessions of pool gpu are open, and 1 session waits in its queue; "), "{text}");
    for run in holding {
        assert_eq!(run.ended().await.code, 0);
    }
    assert_eq!(next.ended().await.code, 0);

    assert_eq!(worker.stop(gpufleet_local::process::Signal::Terminate).await, Some(0));
    let alone = Run::start(&ground, "--quiet", "double");
    let text = waits_for(&ground, "no_consumer").await;
    assert!(text.contains("no worker serves pool gpu, and 1 session waits in its queue; to start one"), "{text}");
    let _without_sessions = ground.worker_with(&["--pool", "gpu"]).await;
    let text = waits_for(&ground, "no_sessions").await;
    assert!(text.contains("gpufleet-worker run --pool gpu:sessions=1"), "{text}");
    let _with_sessions = ground.worker_with(&TAKES_SESSIONS).await;
    assert_eq!(alone.ended().await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_numbers_of_a_session_are_known_while_it_is_open_and_survive_its_worker() {
    let (ground, worker) = with_sessions("session-progress").await;
    let run = Run::begun(&ground, "--quiet", "endless").await;
    let since = Instant::now();
    poll_until("the session is in the ledger", async || sessions(&ground).await.len() == 1).await;
    let job_id = sessions(&ground).await[0];
    let reported = |job: &JobDetail| job.attempts[0].session.as_ref().map_or(0, |used| used.busy_us);
    ground.poll_attempts("a report of the open session", job_id, |job| reported(job) > 0).await;
    assert!(since.elapsed() > Duration::from_secs(5), "the first report comes after ten seconds");
    let home = tempfile::tempdir().unwrap();
    let shown = ground.gpufleet(home.path(), &["show", &job_id.to_string()]).await.ok();
    assert!(shown.stdout.contains("  session  as last reported · GPU busy "), "{}", shown.stdout);
    worker.kill9().await.unwrap();
    let _worker = ground.worker_with(&TAKES_SESSIONS).await;
    assert_eq!(run.ended().await.code, 10);
    let job = ground.final_job(job_id).await;
    assert_eq!(failure(&job).0, "executor_lost", "{job:?}");
    let [first, second] = job.attempts.as_slice() else { panic!("{job:?}") };
    assert_eq!((first.state, second.state, &second.session), (AttemptState::Running, AttemptState::Failed, &None));
    assert!(reported(&job) > 0, "{job:?}");
    let used = || async {
        let home = tempfile::tempdir().unwrap();
        let usage = ground.gpufleet(home.path(), &["usage", "--by", "kernel", "-o", "json"]).await.json();
        let rows = usage["rows"].as_array().unwrap().clone();
        rows.iter().any(|row| row["charged_us"].as_u64() >= Some(reported(&job)))
    };
    poll_until("its device time is in the statistics", used).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_for_the_command_alone_reaches_the_program() {
    let (ground, _worker) = with_sessions("session-signals").await;
    let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGHUP];
    for number in signals {
        let run = Run::begun(&ground, "--quiet", "hold 1048576").await;
        signal(run.pid(), number);
        let ended = run.ended().await;
        assert_eq!(ended.code, 128 + number, "{ended:?}");
    }
    poll_until("all sessions", async || sessions(&ground).await.len() == signals.len()).await;
    for session in sessions(&ground).await {
        let job = ground.final_job(session).await;
        let (code, message) = failure(&job);
        assert!(code == "program_failed" && message.starts_with("the program was ended by signal "), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_signal_is_passed_on_and_the_program_decides_what_it_means() {
    let (ground, _worker) = with_sessions("session-second-signal").await;
    let home = tempfile::tempdir().unwrap();
    let words = ["run", "--quiet", "--memory", "64MiB", "--pool", "gpu", "--", "python3", COUNTS_SIGNALS, "2"];
    let mut command = gpufleet_process(home.path(), &words);
    let mut command = command.envs(environment(&ground)).stdout(Stdio::piped()).spawn().unwrap();
    let (pid, mut lines) = (command.id().unwrap(), BufReader::new(command.stdout.take().unwrap()).lines());
    for expected in ["ready", "interrupted"] {
        assert_eq!(timeout(WAIT, lines.next_line()).await.unwrap().unwrap().as_deref(), Some(expected));
        signal(pid, libc::SIGINT);
    }
    for expected in ["interrupted", "2 in all"] {
        assert_eq!(timeout(WAIT, lines.next_line()).await.unwrap().unwrap().as_deref(), Some(expected));
    }
    assert_eq!(timeout(WAIT, command.wait()).await.unwrap().unwrap().code(), Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_in_a_terminal_comes_to_the_program_once() {
    let (ground, _worker) = with_sessions("session-terminal").await;
    let home = tempfile::tempdir().unwrap();
    let words = ["run", "--quiet", "--memory", "64MiB", "--pool", "gpu", "--", "python3", COUNTS_SIGNALS, "1"];
    let run = gpufleet_process(home.path(), &words);
    let mut command = Command::new("python3");
    command.arg(TERMINAL).arg(run.as_std().get_program()).args(words).current_dir(home.path());
    command.envs(environment(&ground)).env("XDG_STATE_HOME", home.path()).kill_on_drop(true);
    let ended = timeout(WAIT, command.output()).await.expect("the command ends").unwrap();
    let written = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.code() == Some(3) && written.contains("1 in all"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_interrupted_is_cancelled_with_the_exit_code_of_the_signal() {
    let (ground, worker) = with_sessions("session-interrupted").await;
    assert_eq!(worker.stop(gpufleet_local::process::Signal::Terminate).await, Some(0));
    let mut run = Run::start(&ground, "", "double");
    let mut waiting = String::new();
    let mut stderr = BufReader::new(run.command.stderr.take().unwrap());
    timeout(WAIT, stderr.read_line(&mut waiting)).await.expect("it says that it waits").unwrap();
    signal(run.pid(), libc::SIGTERM);
    let ended = timeout(WAIT, run.command.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(128 + libc::SIGTERM));
    let _worker = ground.worker_with(&TAKES_SESSIONS).await;
    assert_eq!(only_session(&ground).await.job.state, JobState::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offer_that_no_client_takes_does_not_stay() {
    let (ground, worker) = with_sessions("session-unclaimed").await;
    assert_eq!(worker.stop(gpufleet_local::process::Signal::Terminate).await, Some(0));
    let request = || Job::session("test", LEASE).pool("gpu".parse().unwrap());
    // One client has closed its reply queue. The other one has died, so its queue is there for ten minutes.
    let client = async || Fleet::builder().connect(&ground.endpoints().amqp_url).await.unwrap();
    let [left, dead] = [client().await, client().await];
    let of_left = left.open_session(request()).await.unwrap().id();
    let of_dead = dead.open_session(request()).await.unwrap().id();
    let queue = reply_queue(dead.client());
    left.close().await;
    drop(dead);
    let since = Instant::now();
    let _worker = ground.worker_with(&TAKES_SESSIONS).await;
    let job = ground.final_job(of_left).await;
    assert_eq!(failure(&job), ("client_lost", "the client that requested the session has closed its reply queue"));
    assert!(since.elapsed() < Duration::from_secs(30), "no offer waits for it");
    poll_until("only the reply is kept", async || ground.messages_in(UNCLAIMED_QUEUE).await == 1).await;
    poll_until("an offer waits", async || ground.messages_in(&queue).await == 1).await;
    let job = ground.final_job(of_dead).await;
    assert_eq!(failure(&job).0, "client_lost");
    poll_until("the offer has gone and the reply is there", async || {
        ground.messages_in(&queue).await == 1 && ground.messages_in(UNCLAIMED_QUEUE).await == 1
    })
    .await;
}

/// Starts a worker behind a proxy with an open session, and a second one.
async fn cut_off(ground: &Ground, program: &str) -> (Proxy, [TestWorker; 2], Run) {
    let proxy = ground.proxy().await;
    let first = ground.worker_with(&[&TAKES_SESSIONS[..], &["--amqp-url", proxy.url()]].concat()).await;
    let run = Run::begun(ground, "--quiet", program).await;
    poll_until("the session is in the ledger", async || sessions(ground).await.len() == 1).await;
    (proxy, [first, ground.worker_with(&TAKES_SESSIONS).await], run)
}

/// What a worker logs when the client of a redelivered session has its session elsewhere.
const OFFERED_AGAIN: &str = "session may be open on another worker, offered again later";

/// Asserts that the session has succeeded in its first attempt, on its first worker, and that no other attempt is known.
async fn assert_ran_once(ground: &Ground, first: &TestWorker) {
    let job = only_session(ground).await;
    let [attempt] = job.attempts.as_slice() else { panic!("{job:?}") };
    assert_eq!((job.job.state, attempt.attempt, attempt.worker.as_str()), (JobState::Succeeded, 1, first.name()));
    assert!(attempt.session.as_ref().is_some_and(|used| used.calls > 5), "{attempt:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_worker_loses_the_broker_goes_on_although_another_worker_gets_its_message() {
    let ground = Ground::shared("session-cut").await;
    let (proxy, [first, second], mut run) = cut_off(&ground, "hold 1048576").await;
    proxy.cut();
    ground.poll_log("the second worker has asked the client", &second, OFFERED_AGAIN).await;
    poll_until("it holds nothing for the session", async || gates(&second).is_empty()).await;
    assert_eq!(gates(&first).len(), 1);
    run.goes_on().await;
    let ended = run.ended().await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_ran_once(&ground, &first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outcome_of_a_session_that_ends_while_its_worker_has_no_broker_is_its_own() {
    let ground = Ground::shared("session-silent").await;
    let (proxy, [first, second], mut run) = cut_off(&ground, "hold 1048576").await;
    proxy.silence(Silence::All);
    ground.poll_log("the second worker has asked the client", &second, OFFERED_AGAIN).await;
    run.goes_on().await;
    let ended = run.ended().await;
    assert_eq!(ended.code, 0, "{ended:?}");
    poll_until("the second worker has found no client", async || second.count_in_log(OFFERED_AGAIN) == 2).await;
    proxy.clear();
    assert_ran_once(&ground, &first).await;
}
