//! What can be told of a task that this side can't read otherwise: enough to answer it.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use crate::{ClientName, JobId, bounds::TASKS_PER_MESSAGE_MAX};

/// Of a task of any version.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Head {
    #[serde(default)]
    pub version: Option<u64>,
    #[serde(default)]
    pub job_id: Option<JobId>,
    /// Whom to answer, where that can be read.
    #[serde(default, deserialize_with = "client")]
    pub reply: Option<ClientName>,
}

/// The heads of a list, no more of them than a message may carry: each takes many times the one byte that it may have in the body.
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

/// A value of any kind: one that names no client must not hide the job's id.
fn client<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ClientName>, D::Error> {
    deserializer.deserialize_any(AnyValue)
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Option<ClientName>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a client's name")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(text.parse().ok())
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}
