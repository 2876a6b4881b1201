//! Nothing of a container is left after its end, however it ends.

use std::{
    fs,
    time::{Duration, Instant},
};

use gpufleet_worker::program::{HostEvent, HostProcess};

use crate::{
    container::InContainer,
    harness::{children, kill, output_has, poll_until, processes_with, rest, unique},
    stopping::{POLITE, stops_by_itself},
};

/// Ignores SIGTERM, and has a child in a session of its own that does too.
const STUBBORN: &str = "trap '' TERM; (sleep 1000 & sleep 1000) & echo ready; sleep 1000; sleep 1000";

/// Checks that no process, mount, container or cgroup is left.
async fn assert_gone(container: InContainer) {
    let name = unique(&container.work.spec.folder);
    poll_until("the processes end", || processes_with(&name).is_empty()).await;
    assert_eq!(container.mounts(), Vec::<String>::new());
    assert_eq!(container.recorded(), "");
    let groups = container.cgroup.entrances();
    let group = groups[0].parent().unwrap();
    assert!(group.exists());
    drop(container.cgroup);
    assert!(!group.exists(), "a group with processes can't be removed");
    fs::remove_dir_all(&container.work.spec.folder).unwrap();
}

async fn start(script: &str) -> Option<(InContainer, HostProcess)> {
    let mut container = InContainer::sh(script)?;
    let name = unique(&container.work.spec.folder);
    container.work.spec.command.push(name);
    let mut process = container.work.start().await;
    output_has(&mut process, "ready").await;
    Some((container, process))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_may_end_by_itself_when_it_is_stopped() {
    let Some(mut container) = InContainer::sh(POLITE) else { return };
    container.work = container.work.download(&["last"]);
    stops_by_itself(&container.work).await;
    assert_gone(container).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_does_not_stop_is_killed_after_the_grace() {
    let Some((container, mut process)) = start(STUBBORN).await else { return };
    let (start, grace) = (Instant::now(), Duration::from_millis(500));
    process.stop(grace).await;
    let run = rest(&mut process).await;
    assert_eq!(run.exit_code(), Some(128 + 9), "{run:?}");
    assert!(start.elapsed() >= grace);
    assert_gone(container).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_ends_with_the_command_of_the_container() {
    let Some((container, mut process)) = start("(trap '' TERM; sleep 1000) >/dev/null 2>&1 & echo ready").await else {
        return;
    };
    assert_eq!(rest(&mut process).await.exit_code(), Some(0));
    assert_gone(container).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_guard_dies_is_gone() {
    let Some((container, mut process)) = start(STUBBORN).await else { return };
    kill(process.pid());
    let died = rest(&mut process).await.last;
    assert!(matches!(&died, HostEvent::Died(how) if how.contains("signal: 9")), "{died:?}");
    assert_gone(container).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_launcher_dies_is_gone() {
    let Some((container, mut process)) = start(STUBBORN).await else { return };
    let [launcher] = children(process.pid())[..] else { panic!("a guard has one child") };
    kill(launcher);
    let died = rest(&mut process).await.last;
    assert!(matches!(&died, HostEvent::Died(how) if how.contains("signal: 9")), "{died:?}");
    assert_gone(container).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_killed_or_dropped_is_gone() {
    let Some((container, process)) = start(STUBBORN).await else { return };
    process.kill().await;
    assert_gone(container).await;
    let Some((container, process)) = start(STUBBORN).await else { return };
    drop(process);
    assert_gone(container).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_can_not_kill_its_init() {
    let Some(container) = InContainer::sh("kill -9 1; kill -TERM 1; kill -INT 1; echo still here") else { return };
    let output = container.work.succeed().await;
    assert!(output.ends_with("still here\n"), "{output}");
}
