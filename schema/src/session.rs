//! Sessions: the offer of a lease, what client and worker say to each other while it is open, and what it used.
//!
//! The client connects to the worker by TLS and knows it by the digest of its certificate, which the offer has. A connection starts with a
//! [`Preface`]. The first connection is for control, in messages of a length and MessagePack ([`encode`]). Each of the others carries the
//! driver calls of one process of the program.

use std::fmt;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{JobId, RanOn};

/// The kind of a session's program ([`Program::kind`](crate::Program::kind)).
pub const KIND: &str = "session";
/// The shortest idle limit of a session, in milliseconds.
pub const IDLE_LIMIT_MS_MIN: u64 = 2_000;
/// Bytes of the secret that a client must show.
pub const TOKEN_BYTES: usize = 32;
/// Bytes of a preface.
pub const PREFACE_BYTES: usize = 8 + TOKEN_BYTES;
/// Maximum bytes of a control message.
pub const CONTROL_BYTES_MAX: usize = 16 << 10;
/// How often each side sends a [`FromClient::Ping`] or [`FromWorker::Ping`], in milliseconds.
pub const PING_MS: u64 = 2_000;
/// After this time without a message, the other side counts as lost, in milliseconds.
pub const SILENCE_MS: u64 = 30_000;

const MAGIC: [u8; 4] = *b"GPFS";
const VERSION: u8 = 1;

/// A worker holds device memory for a session and waits for its client.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOffer {
    pub version: u32,
    pub job_id: JobId,
    pub attempt: u32,
    /// `HOST:PORT`, in the order in which the client tries them.
    pub addresses: Vec<String>,
    /// The BLAKE3 digest of the worker's certificate in DER, in hexadecimal.
    pub certificate: String,
    /// The secret of this session, in hexadecimal.
    pub token: String,
    pub ran_on: RanOn,
    pub memory_bytes: u64,
    pub time_limit_ms: u64,
    /// The worker takes the memory back if no client has connected by then.
    pub connect_within_ms: u64,
}

/// What a session did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SessionUse {
    /// Processes of the program that used the device, one after the other.
    pub processes: u32,
    /// Driver calls.
    pub calls: u64,
    /// Calls for whose answer the program waited.
    pub waits: u64,
    /// Bytes from the program to the worker.
    pub sent_bytes: u64,
    /// Bytes from the worker to the program.
    pub received_bytes: u64,
    /// Time in which the device worked for the session, in microseconds.
    pub busy_us: u64,
    /// The leased device memory.
    pub memory_bytes: u64,
    /// The most device memory that the program had at a time.
    pub memory_bytes_peak: u64,
    /// The exit code of the command, if it exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended the command, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// The first bytes of a connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Preface {
    pub token: [u8; TOKEN_BYTES],
    pub purpose: Purpose,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Control = 1,
    /// The driver calls of a process.
    Program = 2,
}

/// A control message of the client. Its first one says what it wants of the session: [`FromClient::Ping`] if it takes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromClient {
    Ping,
    /// The command has ended, perhaps in an earlier attempt. One of the two is set.
    Ended {
        exit_code: Option<i32>,
        signal: Option<i32>,
    },
    /// The program ran in an earlier attempt, and its session is lost. Nothing will run.
    Lost,
    /// The program has its session in an earlier attempt, or had it there, and the worker of that attempt reports how it ended. This worker
    /// gives the session's message back.
    Elsewhere,
}

/// A control message of the worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromWorker {
    Ping,
    /// The session will end.
    Warning {
        reason: String,
        in_ms: u64,
    },
    /// The session ends, because the worker ends it or because the client has said so. It is the last message.
    Closed {
        reason: Option<String>,
        used: SessionUse,
    },
}

/// Bytes that are not what the other side should have sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the other side sent something other than a session message")]
pub struct NotASession;

impl Preface {
    pub fn to_bytes(&self) -> [u8; PREFACE_BYTES] {
        let mut bytes = [0; PREFACE_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        (bytes[4], bytes[5]) = (VERSION, self.purpose as u8);
        bytes[8..].copy_from_slice(&self.token);
        bytes
    }

    pub fn parse(bytes: &[u8; PREFACE_BYTES]) -> Result<Self, NotASession> {
        let purpose = match bytes[5] {
            1 => Purpose::Control,
            2 => Purpose::Program,
            _ => return Err(NotASession),
        };
        let is_ours = bytes.starts_with(&MAGIC) && bytes[4] == VERSION;
        let token = bytes.last_chunk().copied().filter(|_| is_ours).ok_or(NotASession)?;
        Ok(Self { token, purpose })
    }
}

/// Encodes a control message, with its length before it.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let body = rmp_serde::to_vec_named(message).expect("a vector takes every message");
    let mut encoded = (body.len() as u32).to_le_bytes().to_vec();
    encoded.extend(body);
    encoded
}

/// Decodes a control message without its length.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, NotASession> {
    rmp_serde::from_slice(body).map_err(|_| NotASession)
}

/// Returns the bytes of a control message after these four, which are its length.
pub fn length(bytes: [u8; 4]) -> Result<usize, NotASession> {
    let length = u32::from_le_bytes(bytes) as usize;
    (length <= CONTROL_BYTES_MAX).then_some(length).ok_or(NotASession)
}

impl SessionUse {
    /// Returns the use with numbers that the ledger can hold, whatever was reported.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let numbers = [
            &mut self.calls,
            &mut self.waits,
            &mut self.sent_bytes,
            &mut self.received_bytes,
            &mut self.busy_us,
            &mut self.memory_bytes,
            &mut self.memory_bytes_peak,
        ];
        numbers.into_iter().for_each(|number| *number = (*number).min(i64::MAX as u64));
        self
    }
}

impl SessionOffer {
    /// Encodes the offer in MessagePack.
    pub fn encode(&self) -> Vec<u8> {
        rmp_serde::to_vec_named(self).expect("a vector takes every offer")
    }

    pub fn decode(body: &[u8]) -> Result<Self, NotASession> {
        rmp_serde::from_slice(body).map_err(|_| NotASession)
    }

    /// Returns the token's bytes.
    pub fn token(&self) -> Result<[u8; TOKEN_BYTES], NotASession> {
        let mut token = [0; TOKEN_BYTES];
        let digits = self.token.as_bytes();
        if digits.len() != 2 * TOKEN_BYTES {
            return Err(NotASession);
        }
        for (byte, pair) in token.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16).ok_or(NotASession);
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Ok(token)
    }
}

/// Writes the token in hexadecimal, as an offer has it.
pub fn token_text(token: &[u8; TOKEN_BYTES]) -> String {
    token.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// Without the token.
impl fmt::Debug for SessionOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionOffer")
            .field("job_id", &self.job_id)
            .field("attempt", &self.attempt)
            .field("addresses", &self.addresses)
            .field("ran_on", &self.ran_on)
            .field("memory_bytes", &self.memory_bytes)
            .finish_non_exhaustive()
    }
}

/// Without the token.
impl fmt::Debug for Preface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preface").field("purpose", &self.purpose).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preface_is_read_as_it_was_written() {
        let preface = Preface { token: [7; TOKEN_BYTES], purpose: Purpose::Program };
        let bytes = preface.to_bytes();
        assert_eq!(Preface::parse(&bytes), Ok(preface.clone()));
        assert!(!format!("{preface:?}").contains('7'));
        for place in [0, 4, 5] {
            let mut other = bytes;
            other[place] ^= 0x40;
            assert_eq!(Preface::parse(&other), Err(NotASession), "{place}");
        }
    }

    #[test]
    fn a_control_message_is_read_as_it_was_written() {
        let used = SessionUse { calls: 3, signal: Some(9), ..SessionUse::default() };
        let message = FromWorker::Closed { reason: Some("cancelled".to_owned()), used };
        let encoded = encode(&message);
        let (start, body) = encoded.split_first_chunk().unwrap();
        assert_eq!(length(*start), Ok(body.len()));
        assert_eq!(decode(body), Ok(message));
        assert_eq!(decode::<FromWorker>(&body[1..]), Err(NotASession));
        assert_eq!(length(u32::MAX.to_le_bytes()), Err(NotASession));
    }

    #[test]
    fn the_token_of_an_offer_is_read_as_it_was_written_and_never_shown() {
        let token = [0xa7; TOKEN_BYTES];
        let ran_on = RanOn { worker: "w".parse().unwrap(), device: 0, device_name: "d".to_owned(), emulated: true };
        let offer = SessionOffer {
            version: crate::VERSION,
            job_id: JobId::new(),
            attempt: 1,
            addresses: vec!["127.0.0.1:9480".to_owned()],
            certificate: "ab".to_owned(),
            token: token_text(&token),
            ran_on,
            memory_bytes: 1,
            time_limit_ms: 1,
            connect_within_ms: 1,
        };
        assert_eq!(SessionOffer::decode(&offer.encode()), Ok(offer.clone()));
        assert_eq!(offer.token(), Ok(token));
        assert!(!format!("{offer:?}").contains("a7a7"));
        for text in ["", "a7", &"zz".repeat(TOKEN_BYTES)] {
            assert_eq!(SessionOffer { token: text.to_owned(), ..offer.clone() }.token(), Err(NotASession));
        }
    }
}
