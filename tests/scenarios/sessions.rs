//! Sessions: `gpufleet run` gives an unmodified CUDA program here a device of a worker. Whatever ends first, the program, the command, the
//! session's process, the worker or a limit: the ledger has one outcome, the memory is free again, and no process is left.

mod outages;
mod reports;
mod signals;

use std::{
    ffi::OsString,
    path::PathBuf,
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use gpufleet::schema::{JobId, JobState};
use gpufleet_ledger::{HistoryFilter, JobDetail};
use gpufleet_tests::{Ended, Ground, TestWorker, WAIT, busy, gpufleet_process, kernels, poll_until, signal};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpufleet-cuda-program");
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
    assert!(!ended.stderr.contains("Broken pipe"), "{}", ended.stderr);
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
