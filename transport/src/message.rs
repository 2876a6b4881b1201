//! Messages without lapin's types, for the other crates.

use std::{collections::BTreeMap, fmt, time::Duration};

mod amqp;

/// A message to publish. It is always persistent, and always mandatory: publishing it fails if no queue is bound.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    pub exchange: &'static str,
    pub routing_key: String,
    pub body: Vec<u8>,
    pub properties: Properties,
}

/// AMQP properties, as far as gpufleet uses them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties {
    /// Names the message. If absent, publishing adds a new one, by which returns are matched.
    pub message_id: Option<String>,
    pub correlation_id: Option<String>,
    pub reply_to: Option<String>,
    pub content_type: Option<String>,
    /// AMQP's `type`.
    pub kind: Option<String>,
    /// Seconds since 1970. AMQP has no finer unit.
    pub timestamp: Option<u64>,
    /// The broker refuses a name other than the connection's user, so a name that is set can be trusted.
    pub user_id: Option<String>,
    /// The broker drops the message after this time, once it is the first one in its queue. Reading ignores it, so that a message that is
    /// published again does not expire.
    pub expires_after: Option<Duration>,
    pub headers: BTreeMap<String, HeaderValue>,
}

/// A header. Reading ignores other types, which brokers add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderValue {
    Int(i64),
    Text(String),
}

impl Message {
    /// A message without properties.
    pub fn to(exchange: &'static str, routing_key: impl Into<String>, body: Vec<u8>) -> Self {
        Self { exchange, routing_key: routing_key.into(), body, properties: Properties::default() }
    }
}

impl Properties {
    pub fn header_int(&self, name: &str) -> Option<i64> {
        match self.headers.get(name)? {
            HeaderValue::Int(value) => Some(*value),
            HeaderValue::Text(_) => None,
        }
    }

    pub fn header_text(&self, name: &str) -> Option<&str> {
        match self.headers.get(name)? {
            HeaderValue::Text(text) => Some(text),
            HeaderValue::Int(_) => None,
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("exchange", &self.exchange)
            .field("routing_key", &self.routing_key)
            .field("body_bytes", &self.body.len())
            .field("properties", &self.properties)
            .finish()
    }
}

impl From<i64> for HeaderValue {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u32> for HeaderValue {
    fn from(value: u32) -> Self {
        Self::Int(value.into())
    }
}

impl From<String> for HeaderValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for HeaderValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}
