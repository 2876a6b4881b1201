//! Connections that a gate does not let in: they get no answer, and the gate goes on.

use std::time::Duration;

use gpufleet_schema::session::{Preface, Purpose};
use gpufleet_worker::session::GateEvent;
use tokio::io::AsyncWriteExt as _;

use crate::{
    client::{Address, Client, is_closed},
    harness::{DEADLINE, next, open, start},
};

/// Connections that may be strangers' at a time.
const STRANGERS_MAX: usize = 8;
/// Less than the time after which a silent connection is closed.
const AT_ONCE: Duration = Duration::from_secs(3);

#[tokio::test]
async fn a_wrong_token_or_preface_is_closed_without_an_answer() {
    let mut gate = start().await;
    let address = Address::of(&gate);
    let preface = Preface { token: address.token, purpose: Purpose::Control }.to_bytes();
    let changed = |place: usize| {
        let mut bytes = preface;
        bytes[place] ^= 1;
        bytes
    };
    // The magic, the version and the token's first and last byte.
    for bytes in [changed(0), changed(4), changed(8), changed(preface.len() - 1)] {
        let mut connection = address.tls().await;
        connection.write_all(&bytes).await.unwrap();
        connection.flush().await.unwrap();
        is_closed(&mut connection, AT_ONCE).await;
    }
    let _client = Client::connect(&gate).await;
    assert_eq!(next(&mut gate).await, GateEvent::Connected);
}

#[tokio::test]
async fn what_is_no_tls_is_closed() {
    let mut gate = start().await;
    for bytes in [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".as_slice(), &[0; 4096], b"SSH-2.0-x\r\n"] {
        let mut connection = Address::of(&gate).tcp().await;
        connection.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::io::AsyncReadExt::read_to_end(&mut connection, &mut answer);
        drop(tokio::time::timeout(AT_ONCE, read).await.expect("the connection is closed"));
        // At most the alert of TLS, which has seven bytes.
        assert!(answer.len() <= 7, "{answer:?}");
    }
    let _client = Client::connect(&gate).await;
    assert_eq!(next(&mut gate).await, GateEvent::Connected);
}

#[tokio::test]
async fn silent_connections_are_few_and_are_closed() {
    let mut gate = start().await;
    let address = Address::of(&gate);
    let mut silent = Vec::new();
    for _ in 0..STRANGERS_MAX {
        silent.push(address.tcp().await);
    }
    // The oldest makes room for this one.
    silent.push(address.tcp().await);
    is_closed(&mut silent[0], AT_ONCE).await;
    for connection in &mut silent[1..] {
        is_closed(connection, DEADLINE).await;
    }
    // A handshake without a preface is silence too.
    is_closed(&mut address.tls().await, DEADLINE).await;
    let _client = Client::connect(&gate).await;
    assert_eq!(next(&mut gate).await, GateEvent::Connected);
}

#[tokio::test]
async fn there_is_one_client() {
    let (mut gate, mut client) = open().await;
    let mut second = Client::silent(&gate).await;
    is_closed(&mut second.connection, AT_ONCE).await;
    gate.warn("still here", 1).await;
    client.hear().await;
}
