//! Helpers that start gates and look at processes.

use std::{
    env, fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use gpufleet_emulator::driver::visible::Part;
use gpufleet_worker::{
    executor::CudaSpec,
    session::{Gate, GateEvent, Listen, Progress, SessionOptions},
};
use rustix::process::{Pid, Signal, kill_process};

use crate::client::Client;

/// Device memory of a lease in these tests, in bytes.
pub(crate) const LEASE: u64 = 1 << 20;
/// Longer than anything takes on a loaded machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) fn executable() -> PathBuf {
    env!("CARGO_BIN_EXE_gpufleet-worker").into()
}

/// Returns a library that Cargo built beside this test.
pub(crate) fn built(name: &str) -> PathBuf {
    env::current_exe().unwrap().with_file_name(name)
}

pub(crate) fn options() -> SessionOptions {
    SessionOptions {
        cuda: CudaSpec::Emulated,
        uuid: Part { device: 0, slice: None }.uuid_text(),
        memory_bytes: LEASE,
        listen: Listen::default(),
        user: None,
    }
}

pub(crate) async fn start() -> Gate {
    Gate::start_program(Some(&executable()), &options()).await.expect("the emulator is built beside the worker")
}

/// Starts a gate and connects its client.
pub(crate) async fn open() -> (Gate, Client) {
    let mut gate = start().await;
    let client = Client::connect(&gate).await;
    assert_eq!(next(&mut gate).await, GateEvent::Connected);
    (gate, client)
}

/// Returns the next event of a gate.
pub(crate) async fn next(gate: &mut Gate) -> GateEvent {
    tokio::time::timeout(DEADLINE, gate.next()).await.expect("an event comes")
}

/// Returns the next event that is no progress.
pub(crate) async fn next_change(gate: &mut Gate) -> GateEvent {
    loop {
        match next(gate).await {
            GateEvent::Progress(_) => {}
            event => return event,
        }
    }
}

/// Waits for progress that fulfils a condition.
pub(crate) async fn progress(gate: &mut Gate, condition: impl Fn(&Progress) -> bool) -> Progress {
    let deadline = Instant::now() + DEADLINE;
    loop {
        assert!(Instant::now() < deadline, "waited in vain for progress");
        match next(gate).await {
            GateEvent::Progress(progress) if condition(&progress) => return progress,
            GateEvent::Progress(_) => {}
            event => panic!("this is no progress: {event:?}"),
        }
    }
}

pub(crate) async fn poll_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the engine of a gate, if it has one.
pub(crate) fn engine(gate: u32) -> Option<u32> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_child = |process: &u32| stat(*process).is_some_and(|(state, parent)| parent == gate && state != "Z");
    processes.into_iter().find(is_child)
}

pub(crate) fn process_exists(process: u32) -> bool {
    // A zombie counts as gone: only its parent has not reaped it yet.
    stat(process).is_some_and(|(state, _)| state != "Z")
}

/// Returns the state of a process, and its parent.
fn stat(process: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

pub(crate) fn kill(process: u32) {
    let process = Pid::from_raw(process.cast_signed()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
}
