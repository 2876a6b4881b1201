//! Reads the few fields of an undecodable task that are needed to answer it.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use uuid::Uuid;

use crate::{
    ClientName, JobId,
    bounds::{NAME_BYTES_MAX, TASKS_PER_MESSAGE_MAX},
};

/// The head of a task of any version. An invalid field is ignored, so that it does not hide the others.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Head {
    #[serde(default, deserialize_with = "version")]
    pub version: Option<u64>,
    #[serde(default, deserialize_with = "job_id")]
    pub job_id: Option<JobId>,
    /// The client that gets the reply.
    #[serde(default, deserialize_with = "client")]
    pub reply: Option<ClientName>,
}

/// The heads of a list, at most as many as a message may have tasks. In memory a head takes many times the one byte
/// that it may take in the body.
pub(super) struct Heads(pub(super) Vec<Head>);

impl<'de> Deserialize<'de> for Heads {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(List)
    }
}

struct List;

impl<'de> Visitor<'de> for List {
    type Value = Heads;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of tasks")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Heads, A::Error> {
        let mut heads = Vec::new();
        while heads.len() < TASKS_PER_MESSAGE_MAX {
            match items.next_element()? {
                Some(head) => heads.push(head),
                None => return Ok(Heads(heads)),
            }
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Heads(heads))
    }
}

fn version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(match deserializer.deserialize_any(AnyValue)? {
        Value::Unsigned(version) => Some(version),
        _ => None,
    })
}

fn job_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<JobId>, D::Error> {
    Ok(match deserializer.deserialize_any(AnyValue)? {
        Value::Text(text) => text.parse().ok(),
        Value::Bytes(bytes) => Some(JobId::from_uuid(Uuid::from_bytes(bytes))),
        _ => None,
    })
}

fn client<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ClientName>, D::Error> {
    Ok(match deserializer.deserialize_any(AnyValue)? {
        Value::Text(text) => text.parse().ok(),
        _ => None,
    })
}

/// The value of a field of a head.
enum Value {
    Unsigned(u64),
    /// At most as long as a name.
    Text(String),
    /// The length of a UUID.
    Bytes([u8; 16]),
    Other,
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(if text.len() <= NAME_BYTES_MAX { Value::Text(text.to_owned()) } else { Value::Other })
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Value, E> {
        Ok(bytes.try_into().map_or(Value::Other, Value::Bytes))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Unsigned(number))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Other)
    }
}
