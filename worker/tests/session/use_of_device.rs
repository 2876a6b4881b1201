//! Programs that use the device, and what is counted of them.

use std::time::{Duration, Instant};

use gpufleet_schema::{
    SessionUse,
    session::{FromClient, FromWorker},
};
use gpufleet_worker::session::{Gate, GateEvent, Progress, SessionOptions};
use tokio::task::block_in_place;

use crate::{
    client::{Address, Client},
    harness::{LEASE, engine, executable, next, next_change, open, options, poll_until, process_exists, progress},
    program::Program,
};

const OUT_OF_MEMORY: i32 = 2;
const DEVICE_UNAVAILABLE: i32 = 46;
const ILLEGAL_ADDRESS: i32 = 700;

/// Closes a gate, and checks that its client hears of it.
async fn close(mut gate: Gate, mut client: Client, reason: Option<&str>) -> SessionUse {
    let used = gate.close(reason.map(str::to_owned)).await;
    let told = FromWorker::Closed { reason: reason.map(str::to_owned), used: used.clone() };
    assert_eq!(client.hear().await, told);
    used
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_computes_within_its_lease_and_is_counted() {
    let (mut gate, client) = open().await;
    let program = block_in_place(|| Program::start(&Address::of(&gate)));
    block_in_place(|| {
        let data = program.alloc(LEASE).unwrap();
        assert_eq!(program.alloc(1), Err(OUT_OF_MEMORY));
        program.fill(data, 41, 1);
        assert_eq!(program.launch("add_one", data, 1), 0);
        assert_eq!(program.read(data), 42);
        // Only a call with an answer tells of a post that failed.
        assert_eq!(program.synchronize(), 0);
    });
    let Progress { used, memory_bytes, fault, .. } = progress(&mut gate, |progress| progress.memory_bytes > 0).await;
    assert_eq!((memory_bytes, used.memory_bytes_peak, used.processes), (LEASE, LEASE, 1));
    assert_eq!(fault, None);
    program.end();
    let ended = progress(&mut gate, |progress| progress.memory_bytes == 0).await.used;
    assert!(ended.calls > ended.waits && ended.waits > 5, "a launch needs no answer: {ended:?}");
    // The kernels alone are longer than a kilobyte.
    assert!(ended.sent_bytes > 1 << 10 && ended.received_bytes > 100 && ended.busy_us > 0, "{ended:?}");
    let used = close(gate, client, None).await;
    assert_eq!(used, ended);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_process_gets_a_fresh_engine_and_its_use_adds_up() {
    let (mut gate, client) = open().await;
    let address = Address::of(&gate);
    let first = block_in_place(|| Program::start(&address));
    let data = block_in_place(|| first.alloc(LEASE / 2)).unwrap();
    let engine_of_first = engine(gate.pid()).unwrap();
    // One process at a time: another one is refused after it has waited for a while.
    let code = block_in_place(|| Program::refused(&address));
    assert_eq!(code, DEVICE_UNAVAILABLE);
    assert_eq!(engine(gate.pid()), Some(engine_of_first));
    block_in_place(|| first.fill(data, 1, 1));
    first.end();
    // This one waits for the end of the first.
    let second = block_in_place(|| Program::start(&address));
    assert!(!process_exists(engine_of_first));
    block_in_place(|| second.free(second.alloc(LEASE).unwrap()));
    second.end();
    let used = progress(&mut gate, |progress| progress.used.processes == 2 && progress.memory_bytes == 0).await.used;
    assert_eq!(used.memory_bytes_peak, LEASE);
    assert_eq!(close(gate, client, None).await.processes, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_kernel_is_busy_time_and_ends_with_the_session() {
    let (mut gate, client) = open().await;
    let program = block_in_place(|| Program::start(&Address::of(&gate)));
    let data = block_in_place(|| program.alloc(4)).unwrap();
    block_in_place(|| {
        program.fill(data, 0, 1);
        assert_eq!(program.launch("spin", data, 0), 0);
    });
    // The kernel runs for at least as long as it seems to.
    let first = progress(&mut gate, |progress| progress.used.busy_us > 0).await;
    let start = Instant::now();
    let second = progress(&mut gate, |progress| progress.used.busy_us > first.used.busy_us + 500_000).await;
    assert!(!first.is_idle && !second.is_idle);
    let engine = engine(gate.pid()).unwrap();
    let used = close(gate, client, Some("time limit")).await;
    assert!(used.busy_us >= second.used.busy_us);
    // Reports are up to half a second old when they arrive, and the first may have been fresh.
    let longest = start.elapsed() + Duration::from_secs(2);
    assert!(used.busy_us - first.used.busy_us <= longest.as_micros() as u64, "{used:?}");
    poll_until("the engine ends", || !process_exists(engine)).await;
    program.closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_calls_is_idle() {
    let (mut gate, client) = open().await;
    let program = block_in_place(|| Program::start(&Address::of(&gate)));
    let active = progress(&mut gate, |progress| progress.used.calls > 0).await;
    assert!(!active.is_idle);
    let idle = progress(&mut gate, |progress| progress.is_idle).await;
    block_in_place(|| program.free(program.alloc(1).unwrap()));
    let active = progress(&mut gate, |progress| progress.used.calls > idle.used.calls).await;
    assert!(!active.is_idle);
    close(gate, client, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_is_reported_before_the_end_of_the_command() {
    let (mut gate, mut client) = open().await;
    let program = block_in_place(|| Program::start(&Address::of(&gate)));
    block_in_place(|| {
        let data = program.alloc(4).unwrap();
        assert_eq!(program.launch("write_beyond", data, 0), 0);
        assert_eq!(program.synchronize(), ILLEGAL_ADDRESS);
        assert_eq!(program.alloc(4), Err(ILLEGAL_ADDRESS));
    });
    client.say(&FromClient::Ended { exit_code: Some(3), signal: None }).await;
    let fault = progress(&mut gate, |progress| progress.fault.is_some()).await.fault;
    assert_eq!(fault.as_deref(), Some("CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_eq!(next_change(&mut gate).await, GateEvent::Ended { exit_code: Some(3), signal: None });
    assert_eq!(close(gate, client, None).await.exit_code, Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_fault_the_next_process_can_use_the_device() {
    let (mut gate, _client) = open().await;
    let address = Address::of(&gate);
    let first = block_in_place(|| Program::start(&address));
    block_in_place(|| {
        assert_eq!(first.launch("stop_here", 0, 0), 0);
        assert_ne!(first.synchronize(), 0);
    });
    first.end();
    let second = block_in_place(|| Program::start(&address));
    assert_eq!(block_in_place(|| second.synchronize()), 0);
    let fault = progress(&mut gate, |progress| progress.fault.is_some()).await.fault;
    assert_eq!(fault.as_deref(), Some("CUDA_ERROR_LAUNCH_FAILED"));
}

#[tokio::test(flavor = "multi_thread")]
async fn client_and_supervisor_hear_of_each_other() {
    let (mut gate, mut client) = open().await;
    assert_eq!(client.next().await, FromWorker::Ping);
    client.say(&FromClient::Ping).await;
    gate.warn("drain", 5000).await;
    assert_eq!(client.hear().await, FromWorker::Warning { reason: "drain".to_owned(), in_ms: 5000 });
    client.say(&FromClient::Lost).await;
    assert_eq!(next_change(&mut gate).await, GateEvent::LostBefore);
    // After the client's word that nothing will run, nothing does.
    assert_eq!(block_in_place(|| Program::refused(&Address::of(&gate))), DEVICE_UNAVAILABLE);
    let unused = SessionUse { memory_bytes: LEASE, ..SessionUse::default() };
    assert_eq!(close(gate, client, Some("cancelled")).await, unused);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_has_its_session_elsewhere_does_not_take_this_one() {
    let ended = |exit_code| FromClient::Ended { exit_code, signal: None };
    for (said, event) in [
        (FromClient::Elsewhere, GateEvent::Elsewhere),
        (FromClient::Lost, GateEvent::LostBefore),
        (ended(Some(3)), GateEvent::Ended { exit_code: Some(3), signal: None }),
    ] {
        let mut gate = Gate::start_program(Some(&executable()), &options()).await.unwrap();
        let mut client = Client::silent(&gate).await;
        client.say(&said).await;
        assert_eq!(next(&mut gate).await, event, "it comes without a connected client before it");
        assert_eq!(block_in_place(|| Program::refused(&Address::of(&gate))), DEVICE_UNAVAILABLE);
        close(gate, client, None).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_without_a_client_is_refused() {
    let mut gate = Gate::start_program(Some(&executable()), &options()).await.unwrap();
    assert_eq!(block_in_place(|| Program::refused(&Address::of(&gate))), DEVICE_UNAVAILABLE);
    let _client = Client::connect(&gate).await;
    assert_eq!(next(&mut gate).await, GateEvent::Connected);
    block_in_place(|| Program::start(&Address::of(&gate)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_can_not_start_says_why() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string().parse().unwrap();
    let start = async |options: SessionOptions| {
        Gate::start_program(Some(&executable()), &options).await.unwrap_err().to_string()
    };
    let refused = start(SessionOptions { listen, ..options() }).await;
    assert!(refused.contains("in use") && refused.contains("--session-listen"), "{refused}");
    let refused = start(SessionOptions { cuda: "/no/driver.so".parse().unwrap(), ..options() }).await;
    assert!(refused.contains("/no/driver.so"), "{refused}");
}
