//! Two encodings with one meaning: MessagePack for programs, JSON for people and small producers.
//!
//! A body is one item or a list of items; its first byte shows which. Decoding borrows inline bytes and lists of
//! numbers from the body. It allocates at most three times the size of the body, even if the body claims large lengths
//! or nests lists.

use std::borrow::Borrow;

use serde::{Deserialize, Serialize};

use crate::{Event, Order, Reply, Task, VERSION, bounds::TASKS_PER_MESSAGE_MAX};

pub(crate) mod bounded;
mod events;
mod head;
mod items;
mod json_text;
pub(crate) mod messagepack;
mod scan;

use bounded::FirstItems;
use head::Heads;

pub use self::{
    events::{Events, UnreadableEvent},
    head::Head,
};
pub(crate) use json_text::{AnyValue, json_text};

/// The encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    MessagePack,
    Json,
}

/// One item or a list, as in the message. A reply message has the form of the message that it answers.
#[derive(Debug, Clone, PartialEq)]
pub enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("the body is empty")]
    Empty,
    #[error("the body is not valid {encoding}: {problem}")]
    Malformed { encoding: Encoding, problem: String },
    #[error("the body has version {found}, but only version {VERSION} is supported")]
    UnsupportedVersion { found: u64 },
    #[error("the body lists {found} tasks; the maximum is {TASKS_PER_MESSAGE_MAX}")]
    TooMany { found: usize },
}

/// Why a value could not be encoded.
#[derive(Debug, thiserror::Error)]
#[error("failed to encode as {encoding}: {problem}")]
pub struct EncodeError {
    encoding: Encoding,
    problem: String,
}

impl Encoding {
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::MessagePack => "application/msgpack",
            Self::Json => "application/json",
        }
    }

    /// The encoding that a `content_type` names; parameters such as a charset are ignored.
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        match content_type.split(';').next()?.trim().to_ascii_lowercase().as_str() {
            "application/msgpack" | "application/x-msgpack" | "application/vnd.msgpack" => Some(Self::MessagePack),
            "application/json" => Some(Self::Json),
            _ => None,
        }
    }

    fn encode<T: Serialize>(self, value: &T) -> Result<Vec<u8>, EncodeError> {
        let encoded = match self {
            // Fields have names, so that a reader of another minor version finds them.
            Self::MessagePack => rmp_serde::to_vec_named(value).map_err(|source| source.to_string()),
            Self::Json => serde_json::to_vec(value).map_err(|source| source.to_string()),
        };
        encoded.map_err(|problem| EncodeError { encoding: self, problem })
    }

    pub(crate) fn decode<'a, T: Deserialize<'a>>(self, body: &'a [u8]) -> Result<T, DecodeError> {
        let decoded = match self {
            Self::MessagePack => {
                scan::check(body).map_err(|problem| self.malformed(problem))?;
                messagepack::from_slice(body).map_err(|source| source.to_string())
            }
            Self::Json => serde_json::from_slice(body).map_err(|source| source.to_string()),
        };
        decoded.map_err(|problem| self.malformed(problem))
    }

    fn malformed(self, problem: impl Into<String>) -> DecodeError {
        let mut problem = problem.into();
        // The error may quote a hostile body, so it is cut for logs and replies.
        problem.truncate(problem.floor_char_boundary(400));
        DecodeError::Malformed { encoding: self, problem }
    }

    /// Whether the body is a list of items, by its first byte.
    pub fn is_list(self, body: &[u8]) -> Result<bool, DecodeError> {
        match self {
            Self::MessagePack => {
                body.first().map(|marker| matches!(marker, 0x90..=0x9f | 0xdc | 0xdd)).ok_or(DecodeError::Empty)
            }
            Self::Json => {
                let first = body.iter().find(|byte| !byte.is_ascii_whitespace()).ok_or(DecodeError::Empty)?;
                Ok(*first == b'[')
            }
        }
    }

    fn decode_one_or_many<'a, T: Deserialize<'a>>(self, body: &'a [u8]) -> Result<OneOrMany<T>, DecodeError> {
        if self.is_list(body)? { self.decode(body).map(OneOrMany::Many) } else { self.decode(body).map(OneOrMany::One) }
    }

    pub fn encode_tasks(self, tasks: &OneOrMany<Task<'_>>) -> Result<Vec<u8>, EncodeError> {
        self.encode(tasks)
    }

    pub fn encode_replies(self, replies: &OneOrMany<Reply<'_>>) -> Result<Vec<u8>, EncodeError> {
        self.encode(replies)
    }

    /// The tasks of a message. A message whose tasks name another version fails as a whole.
    pub fn decode_tasks<'a>(self, body: &'a [u8]) -> Result<OneOrMany<Task<'a>>, DecodeError> {
        let decoded = bounded::within(body, || self.decode_task_list(body));
        let items = decoded.map_err(|error| self.blame_version(body, error))?;
        match items.iter().find(|task| task.version != VERSION) {
            Some(task) => Err(DecodeError::UnsupportedVersion { found: task.version.into() }),
            None => Ok(items),
        }
    }

    pub fn decode_replies<'a>(self, body: &'a [u8]) -> Result<OneOrMany<Reply<'a>>, DecodeError> {
        let items: OneOrMany<Reply<'a>> =
            self.decode_one_or_many(body).map_err(|error| self.blame_version(body, error))?;
        match items.iter().find(|reply| reply.version != VERSION) {
            Some(reply) => Err(DecodeError::UnsupportedVersion { found: reply.version.into() }),
            None => Ok(items),
        }
    }

    fn decode_task_list<'a>(self, body: &'a [u8]) -> Result<OneOrMany<Task<'a>>, DecodeError> {
        if !self.is_list(body)? {
            return self.decode(body).map(OneOrMany::One);
        }
        let FirstItems::<_, TASKS_PER_MESSAGE_MAX> { items, found } = self.decode(body)?;
        if found > TASKS_PER_MESSAGE_MAX { Err(DecodeError::TooMany { found }) } else { Ok(OneOrMany::Many(items)) }
    }

    /// The versions, ids and clients in an undecodable body, as far as they can be read. The result has at most as many
    /// heads as a message may have tasks.
    pub fn decode_heads(self, body: &[u8]) -> Vec<Head> {
        let heads = match self.is_list(body) {
            Ok(true) => self.decode::<Heads>(body).map(|heads| heads.0),
            Ok(false) => self.decode(body).map(|head| vec![head]),
            Err(error) => Err(error),
        };
        heads.unwrap_or_default()
    }

    /// Replaces the error by the version, if the body has another version. The decoder's own error would mislead then.
    fn blame_version(self, body: &[u8], error: DecodeError) -> DecodeError {
        self.decode_heads(body)
            .into_iter()
            .find_map(|head| head.version.filter(|version| *version != u64::from(VERSION)))
            .map_or(error, |found| DecodeError::UnsupportedVersion { found })
    }
}

/// Events are always a MessagePack list, because only gpufleet's programs exchange them.
pub fn encode_events<E: Borrow<Event> + Serialize>(events: &[E]) -> Result<Vec<u8>, EncodeError> {
    Encoding::MessagePack.encode(&events)
}

/// One event as a message of its own. An event of a later release keeps its original encoding.
pub fn encode_event(event: &Event) -> Result<Vec<u8>, EncodeError> {
    match event {
        Event::Later(later) => Ok(Encoding::MessagePack.join(&[&later.encoded])),
        event => encode_events(std::slice::from_ref(event)),
    }
}

/// The events of a message, if all of them can be read.
pub fn decode_events(body: &[u8]) -> Result<Vec<Event>, DecodeError> {
    let Events { events, unreadable } = Events::decode(body)?;
    match unreadable.into_iter().next() {
        Some(event) => Err(Encoding::MessagePack.malformed(event.problem)),
        None => Ok(events),
    }
}

/// Orders are always JSON, because they are few and people read them.
pub fn encode_order(order: &Order) -> Result<Vec<u8>, EncodeError> {
    Encoding::Json.encode(order)
}

pub fn decode_order(body: &[u8]) -> Result<Order, DecodeError> {
    let order: Order = Encoding::Json.decode(body).map_err(|error| Encoding::Json.blame_version(body, error))?;
    match order.version {
        VERSION => Ok(order),
        found => Err(DecodeError::UnsupportedVersion { found: found.into() }),
    }
}

impl std::fmt::Display for Encoding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::MessagePack => "MessagePack",
            Self::Json => "JSON",
        })
    }
}

impl<T> OneOrMany<T> {
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::One(item) => std::slice::from_ref(item),
            Self::Many(items) => items,
        }
    }

    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.as_slice().iter()
    }

    pub fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(item) => vec![item],
            Self::Many(items) => items,
        }
    }
}

impl<T: Serialize> Serialize for OneOrMany<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::One(item) => item.serialize(serializer),
            Self::Many(items) => items.serialize(serializer),
        }
    }
}
