//! What the supervisor and a gate say to each other, in the form of the control messages between gate and client.

use std::io;

use gpufleet_schema::{
    SessionUse,
    session::{self, NotASession, TOKEN_BYTES},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// A message of the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGate {
    /// Warn the client that the session will end.
    Warn { reason: String, in_ms: u64 },
    /// End the session. The client gets the reason.
    Close { reason: Option<String> },
}

/// A message of the gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromGate {
    /// The first message: clients can connect.
    Ready(GateReady),
    /// The first message of a gate that can't start, with the reason.
    Failed(String),
    Event(GateEvent),
    /// The last message: the session has ended.
    Closed(SessionUse),
}

/// How a client reaches a session.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateReady {
    pub port: u16,
    /// The BLAKE3 digest of the certificate in DER, in hexadecimal.
    pub certificate: String,
    pub token: [u8; TOKEN_BYTES],
}

/// What happened in a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GateEvent {
    /// The client has connected, and wants the session.
    Connected,
    Progress(Progress),
    /// The command has ended. One of the two is set.
    Ended {
        exit_code: Option<i32>,
        signal: Option<i32>,
    },
    /// The program ran in an earlier attempt, whose session is lost. Nothing will run.
    LostBefore,
    /// The program has its session on another worker, or had it there until its end.
    Elsewhere,
    /// The control connection has ended without notice, or the client is silent.
    ClientLost,
    /// The gate has exited: why, for people.
    Died(String),
}

/// What a session has done so far. A gate reports it each second, and when an engine ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub used: SessionUse,
    /// Device memory that the program has now, in bytes.
    pub memory_bytes: u64,
    /// A process of the program is being served, so there may be a context.
    pub has_engine: bool,
    /// Since the last report there was no call and no byte, and nothing runs.
    pub is_idle: bool,
    /// The name of the code with which a kernel last made a context unusable, if one has.
    pub fault: Option<String>,
}

/// Reads a message; none at the end of the connection.
pub(super) async fn read<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<T>> {
    let mut start = [0; 4];
    match from.read_exact(&mut start).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut body = vec![0; session::length(start).map_err(invalid)?];
    from.read_exact(&mut body).await?;
    session::decode(&body).map(Some).map_err(invalid)
}

fn invalid(error: NotASession) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Without the token.
impl std::fmt::Debug for GateReady {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GateReady")
            .field("port", &self.port)
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_are_read_as_they_were_written_until_the_end() {
        let used = SessionUse { calls: 3, signal: Some(9), ..SessionUse::default() };
        let progress = Progress { used: used.clone(), fault: Some("x".to_owned()), ..Progress::default() };
        let ready = GateReady { port: 9480, certificate: "ab".to_owned(), token: [0xa7; TOKEN_BYTES] };
        let messages = [FromGate::Ready(ready), FromGate::Event(GateEvent::Progress(progress)), FromGate::Closed(used)];
        let bytes: Vec<u8> = messages.iter().flat_map(session::encode).collect();
        let mut from = bytes.as_slice();
        for message in messages {
            assert_eq!(read(&mut from).await.unwrap(), Some(message));
        }
        assert_eq!(read::<FromGate>(&mut from).await.unwrap(), None);
        assert_eq!(read::<FromGate>(&mut &bytes[..9]).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(read::<FromGate>(&mut [0xff; 8].as_slice()).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn the_token_is_not_shown() {
        let ready = GateReady { port: 1, certificate: String::new(), token: [99; TOKEN_BYTES] };
        assert!(!format!("{:?}", FromGate::Ready(ready)).contains("99"));
    }
}
