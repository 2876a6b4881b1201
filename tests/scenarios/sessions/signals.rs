//! Signals for `gpufleet run` and its program.

use std::process::Stdio;

use gpufleet::schema::JobState;
use gpufleet_local::process::Signal;
use gpufleet_tests::{WAIT, gpufleet_process, poll_until, signal};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::timeout,
};

use super::{Run, TAKES_SESSIONS, environment, failure, only_session, sessions, with_sessions};

const TERMINAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/foreign/terminal.py");
const COUNTS_SIGNALS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/foreign/counts_signals.py");

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_for_the_command_alone_reaches_the_program() {
    let (ground, _worker) = with_sessions("session-signals").await;
    let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGHUP];
    for number in signals {
        // A program that ends with its input could do so before the signal comes.
        let run = Run::begun(&ground, "--quiet", "endless").await;
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
    assert_eq!(worker.stop(Signal::Terminate).await, Some(0));
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
