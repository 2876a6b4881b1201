//! Nothing of a program is left after its end, however it ends.

use std::time::{Duration, Instant};

use gpufleet_worker::program::HostEvent;

use crate::harness::{Work, children, kill, output_has, poll_until, processes_with, rest, unique};

const MINUTE: Duration = Duration::from_secs(60);
/// Ends by itself, with a file, when it is told to.
pub(crate) const POLITE: &str = "trap 'echo bye > last; exit 7' TERM; echo ready; while :; do sleep 0.01; done";

/// Starts a process that has left its parent, its session and its output, and ignores SIGTERM. Prints `ready` when it runs.
fn daemon(name: &str, then: &str) -> String {
    let sleeper = format!("['python3', '-c', 'import time; time.sleep(1000)', '{name}']");
    [
        "import os, signal, sys, time",
        "r, w = os.pipe()",
        "if os.fork() == 0:",
        "    os.setsid()",
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "    null = os.open('/dev/null', os.O_RDWR)",
        "    for d in (0, 1, 2): os.dup2(null, d)",
        &format!("    if os.fork() == 0: os.execv('/usr/bin/python3', {sleeper})"),
        "    os._exit(0)",
        "os.close(w)",
        // The pipe ends with the exec.
        "os.read(r, 1)",
        "print('ready')",
        then,
    ]
    .join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_ends_with_the_command() {
    let mut work = Work::python("");
    let name = unique(&work.spec.folder);
    work.spec.command = vec!["python3".to_owned(), "-c".to_owned(), daemon(&name, "sys.exit(0)")];
    let run = work.run().await;
    assert_eq!((run.exit_code(), run.output.as_str()), (Some(0), "ready\n"));
    assert_eq!(processes_with(&name), Vec::<u32>::new());
}

/// Stops a program with the script [`POLITE`], and checks that it is not killed.
pub(crate) async fn stops_by_itself(work: &Work) {
    let mut process = work.start().await;
    output_has(&mut process, "ready").await;
    let start = Instant::now();
    process.stop(MINUTE).await;
    let run = rest(&mut process).await;
    assert_eq!(run.exit_code(), Some(7), "{run:?}");
    assert!(start.elapsed() < MINUTE);
    assert_eq!(work.packed()["last"].1, "bye\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_may_end_by_itself_when_it_is_stopped() {
    stops_by_itself(&Work::sh(POLITE).download(&["last"])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_stop_is_killed_after_the_grace_and_its_files_come_back() {
    let mut work = Work::python("").download(&["last"]);
    let name = unique(&work.spec.folder);
    let then = "signal.signal(signal.SIGTERM, lambda *_: open('last', 'w').write('still here'))\nprint('set')\n\
                while True: time.sleep(1000)";
    work.spec.command = vec!["python3".to_owned(), "-c".to_owned(), daemon(&name, then)];
    let mut process = work.start().await;
    output_has(&mut process, "set").await;
    let (start, grace) = (Instant::now(), Duration::from_millis(500));
    process.stop(grace).await;
    let run = rest(&mut process).await;
    assert_eq!((run.exit_code(), run.signal()), (None, Some(9)));
    assert!(start.elapsed() >= grace);
    assert_eq!(work.packed()["last"].1, "still here");
    assert_eq!(processes_with(&name), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_whose_guard_dies_is_gone() {
    let (mut process, name) = start_daemon().await;
    kill(process.pid());
    let died = rest(&mut process).await.last;
    assert!(matches!(&died, HostEvent::Died(how) if how.contains("signal: 9")), "{died:?}");
    assert_eq!(processes_with(&name), Vec::<u32>::new());
    process.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_whose_init_dies_is_gone() {
    let (mut process, name) = start_daemon().await;
    let [init] = children(process.pid())[..] else { panic!("a guard has one child") };
    kill(init);
    let died = rest(&mut process).await.last;
    assert!(matches!(&died, HostEvent::Died(how) if how.contains("signal: 9")), "{died:?}");
    assert_eq!(processes_with(&name), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_after_a_kill() {
    let (process, name) = start_daemon().await;
    process.kill().await;
    assert_eq!(processes_with(&name), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_dropped_is_killed() {
    let (process, name) = start_daemon().await;
    drop(process);
    poll_until("the program dies", || processes_with(&name).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_can_not_kill_its_init() {
    let output = Work::sh("kill -9 1; kill -TERM 1; kill -INT 1; echo still here").succeed().await;
    assert!(output.ends_with("still here\n"), "{output}");
}

/// Starts a program with a daemon, and returns the text by which both are found.
async fn start_daemon() -> (gpufleet_worker::program::HostProcess, String) {
    let mut work = Work::python("");
    let name = unique(&work.spec.folder);
    work.spec.command =
        vec!["python3".to_owned(), "-c".to_owned(), daemon(&name, "while True: time.sleep(1000)"), name.clone()];
    let mut process = work.start().await;
    output_has(&mut process, "ready").await;
    assert!(processes_with(&name).len() >= 2);
    (process, name)
}
