//! [`Properties`] to and from lapin's, with the bounds that AMQP sets.

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, ShortString},
};

use super::{HeaderValue, Message, Properties};
use crate::PublishError;

/// AMQP's short strings have one byte for their length.
const SHORT_STRING_BYTES_MAX: usize = 255;
/// All headers must fit one frame of 128 KiB by default; a larger one closes the whole connection. Half of it leaves room
/// for the other properties, and for a broker with smaller frames.
pub(crate) const HEADERS_BYTES_MAX: usize = 64 << 10;
/// A header's name has a length byte, its value a type byte and at most eight bytes of number or length.
const HEADER_OVERHEAD_BYTES: usize = 10;
const PERSISTENT: u8 = 2;

impl Message {
    /// Rejects a message that would make the broker close the channel or the connection.
    pub(crate) fn check(&self, body_bytes_max: usize) -> Result<(), PublishError> {
        if self.body.len() > body_bytes_max {
            return Err(PublishError::TooLarge { bytes: self.body.len(), max: body_bytes_max });
        }
        let properties = &self.properties;
        let short = [
            ("exchange", Some(self.exchange)),
            ("routing key", Some(self.routing_key.as_str())),
            ("message id", properties.message_id.as_deref()),
            ("correlation id", properties.correlation_id.as_deref()),
            ("reply-to", properties.reply_to.as_deref()),
            ("content type", properties.content_type.as_deref()),
            ("type", properties.kind.as_deref()),
            ("user id", properties.user_id.as_deref()),
        ];
        let named = properties.headers.keys().map(|name| ("header name", Some(name.as_str())));
        for (property, text) in short.into_iter().chain(named) {
            let bytes = text.map_or(0, str::len);
            if bytes > SHORT_STRING_BYTES_MAX {
                return Err(PublishError::PropertyTooLong { property, bytes });
            }
        }
        let bytes = properties.header_bytes();
        if bytes > HEADERS_BYTES_MAX {
            return Err(PublishError::HeaderTooLarge { bytes, max: HEADERS_BYTES_MAX });
        }
        Ok(())
    }
}

impl Properties {
    fn header_bytes(&self) -> usize {
        let value = |value: &HeaderValue| match value {
            HeaderValue::Int(_) => 0,
            HeaderValue::Text(text) => text.len(),
        };
        self.headers.iter().map(|(name, v)| name.len() + value(v) + HEADER_OVERHEAD_BYTES).sum()
    }

    /// Requires [`Message::check`], because lapin panics at a short string that is too long.
    pub(crate) fn to_amqp(&self) -> BasicProperties {
        let short = |text: &Option<String>| text.as_deref().map(ShortString::from);
        let mut amqp = BasicProperties::default().with_delivery_mode(PERSISTENT);
        if let Some(id) = short(&self.message_id) {
            amqp = amqp.with_message_id(id);
        }
        if let Some(id) = short(&self.correlation_id) {
            amqp = amqp.with_correlation_id(id);
        }
        if let Some(queue) = short(&self.reply_to) {
            amqp = amqp.with_reply_to(queue);
        }
        if let Some(content_type) = short(&self.content_type) {
            amqp = amqp.with_content_type(content_type);
        }
        if let Some(kind) = short(&self.kind) {
            amqp = amqp.with_type(kind);
        }
        if let Some(user) = short(&self.user_id) {
            amqp = amqp.with_user_id(user);
        }
        if let Some(timestamp) = self.timestamp {
            amqp = amqp.with_timestamp(timestamp);
        }
        if let Some(time) = self.expires_after {
            amqp = amqp.with_expiration(time.as_millis().to_string().into());
        }
        if !self.headers.is_empty() {
            amqp = amqp.with_headers(self.header_table());
        }
        amqp
    }

    fn header_table(&self) -> FieldTable {
        let mut table = FieldTable::default();
        for (name, value) in &self.headers {
            let value = match value {
                HeaderValue::Int(value) => AMQPValue::LongLongInt(*value),
                HeaderValue::Text(text) => AMQPValue::LongString(text.as_str().into()),
            };
            table.insert(name.as_str().into(), value);
        }
        table
    }

    pub(crate) fn from_amqp(amqp: &BasicProperties) -> Self {
        let text = |short: &Option<ShortString>| short.as_ref().map(ToString::to_string);
        let headers = amqp.headers().iter().flat_map(|table| table.inner());
        Self {
            message_id: text(amqp.message_id()),
            correlation_id: text(amqp.correlation_id()),
            reply_to: text(amqp.reply_to()),
            content_type: text(amqp.content_type()),
            kind: text(amqp.kind()),
            timestamp: *amqp.timestamp(),
            user_id: text(amqp.user_id()),
            expires_after: None,
            headers: headers.filter_map(|(name, value)| Some((name.to_string(), header(value)?))).collect(),
        }
    }
}

/// Converts a header value. Other producers use many integer types; here they are one.
fn header(value: &AMQPValue) -> Option<HeaderValue> {
    Some(match value {
        AMQPValue::ShortShortInt(value) => i64::from(*value).into(),
        AMQPValue::ShortShortUInt(value) => i64::from(*value).into(),
        AMQPValue::ShortInt(value) => i64::from(*value).into(),
        AMQPValue::ShortUInt(value) => i64::from(*value).into(),
        AMQPValue::LongInt(value) => i64::from(*value).into(),
        AMQPValue::LongUInt(value) => i64::from(*value).into(),
        AMQPValue::LongLongInt(value) => (*value).into(),
        AMQPValue::LongString(text) => String::from_utf8_lossy(text.as_bytes()).into_owned().into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn full() -> Properties {
        let some = |text: &str| Some(text.to_owned());
        Properties {
            message_id: some("m"),
            correlation_id: some("c"),
            reply_to: some("r"),
            content_type: some("application/json"),
            kind: some("gpufleet.task"),
            timestamp: Some(1_700_000_000),
            user_id: some("guest"),
            expires_after: None,
            headers: [("n".to_owned(), HeaderValue::Int(-7)), ("t".to_owned(), "text".into())].into(),
        }
    }

    fn message(properties: Properties) -> Message {
        Message { exchange: "e", routing_key: "k".to_owned(), body: vec![1; 10], properties }
    }

    #[test]
    fn properties_round_trip() {
        assert_eq!(Properties::from_amqp(&full().to_amqp()), full());
        assert_eq!(Properties::from_amqp(&Properties::default().to_amqp()), Properties::default());
    }

    #[test]
    fn a_time_to_live_is_written_in_milliseconds_and_not_read() {
        let amqp = Properties { expires_after: Some(Duration::from_secs(30)), ..full() }.to_amqp();
        assert_eq!(amqp.expiration().as_ref().map(ToString::to_string).as_deref(), Some("30000"));
        assert_eq!(Properties::from_amqp(&amqp), full());
    }

    #[test]
    fn every_message_is_persistent() {
        assert_eq!(*Properties::default().to_amqp().delivery_mode(), Some(2));
    }

    #[test]
    fn integers_of_every_width_are_read_and_other_types_are_left_out() {
        let mut table = FieldTable::default();
        table.insert("byte".into(), AMQPValue::ShortShortUInt(200));
        table.insert("short".into(), AMQPValue::ShortInt(-3));
        table.insert("long".into(), AMQPValue::LongUInt(4_000_000_000));
        table.insert("flag".into(), AMQPValue::Boolean(true));
        table.insert("table".into(), AMQPValue::FieldTable(FieldTable::default()));
        let read = Properties::from_amqp(&BasicProperties::default().with_headers(table));
        assert_eq!(read.header_int("byte"), Some(200));
        assert_eq!(read.header_int("short"), Some(-3));
        assert_eq!(read.header_int("long"), Some(4_000_000_000));
        assert_eq!(read.headers.len(), 3);
        assert_eq!(read.header_text("byte"), None);
    }

    #[test]
    fn messages_that_would_break_the_connection_are_refused_before_sending() {
        assert_eq!(message(full()).check(10), Ok(()));
        assert_eq!(message(full()).check(9), Err(PublishError::TooLarge { bytes: 10, max: 9 }));
        let long = Properties { correlation_id: Some("x".repeat(256)), ..full() };
        let refusal = PublishError::PropertyTooLong { property: "correlation id", bytes: 256 };
        assert_eq!(message(long).check(10), Err(refusal));
        let wide = Properties { headers: [("h".to_owned(), "x".repeat(200_000).into())].into(), ..full() };
        assert!(matches!(message(wide).check(10), Err(PublishError::HeaderTooLarge { .. })));
        let named = Properties { headers: [("h".repeat(256), HeaderValue::Int(1))].into(), ..full() };
        assert!(matches!(message(named).check(10), Err(PublishError::PropertyTooLong { .. })));
    }
}
