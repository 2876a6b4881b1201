//! The effects of a death: of the client, an engine, the gate and the supervisor.

use std::{
    io::Read as _,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::Command,
};

use gpufleet_schema::session::{TOKEN_BYTES, decode, length};
use gpufleet_worker::session::{FromGate, GateEvent, GateReady};
use tokio::task::block_in_place;

use crate::{
    client::Address,
    harness::{engine, executable, kill, next_change, open, options, poll_until, process_exists, progress},
    program::Program,
};

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_control_connection_is_the_loss_of_the_client() {
    let (mut gate, client) = open().await;
    drop(client);
    assert_eq!(next_change(&mut gate).await, GateEvent::ClientLost);
    gate.close(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_dies_with_the_connection_of_its_program_alone() {
    let (mut gate, _client) = open().await;
    let address = Address::of(&gate);
    let program = block_in_place(|| Program::start(&address));
    kill(engine(gate.pid()).unwrap());
    program.closed().await;
    let next = block_in_place(|| Program::start(&address));
    assert!(block_in_place(|| next.alloc(1)).is_ok());
    progress(&mut gate, |progress| progress.used.processes == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_dies_with_its_engine() {
    let (mut gate, _client) = open().await;
    let _program = block_in_place(|| Program::start(&Address::of(&gate)));
    let engine = engine(gate.pid()).unwrap();
    kill(gate.pid());
    poll_until("the engine dies", || !process_exists(engine)).await;
    let died = next_change(&mut gate).await;
    assert!(matches!(&died, GateEvent::Died(how) if how.contains("signal: 9")), "{died:?}");
    assert_eq!(gate.close(None).await.processes, 0, "no progress was reported");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_is_dropped_dies() {
    let (gate, _client) = open().await;
    let process = gate.pid();
    drop(gate);
    poll_until("the gate dies", || !process_exists(process)).await;
}

#[test]
fn a_gate_ends_with_its_supervisor() {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut command = Command::new(executable());
    command.args(["session", "--cuda", "emulated", "--uuid", &options().uuid, "--memory-bytes", "1"]);
    command.args(["--listen", "127.0.0.1:0"]).stdin(OwnedFd::from(theirs));
    let mut gate = command.spawn().unwrap();
    drop(command);
    let mut start = [0; 4];
    ours.read_exact(&mut start).unwrap();
    let mut body = vec![0; length(start).unwrap()];
    ours.read_exact(&mut body).unwrap();
    let ready = decode(&body).unwrap();
    let FromGate::Ready(GateReady { port, certificate, token }) = ready else { panic!("it is not ready: {ready:?}") };
    assert!(port > 0 && certificate.len() == 64 && token != [0; TOKEN_BYTES]);
    drop(ours);
    assert!(gate.wait().unwrap().success());
}
