//! How far a stream has been read.
//!
//! After an interruption a subscription requests the last message that was read once more. If that message comes first, the
//! stream is unchanged and reading continues behind it. If another message or none comes, an operator has recreated
//! the stream or a crash has truncated it. Then it is read from its beginning.

use lapin::types::AMQPValue;

use crate::{Delivery, Properties, delivery::STREAM_OFFSET};

/// A place in a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Position {
    offset: i64,
    message_id: Option<String>,
}

/// The state of the stream by the first message of a resumed subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resumed {
    /// The message that was read last.
    Repeated,
    /// A later message: the stream has discarded the last one that was read.
    Later,
    /// Another message at the same or an earlier offset.
    Elsewhere,
}

impl Position {
    /// `None` if the delivery does not come from a stream.
    pub(super) fn of(delivery: &Delivery) -> Option<Self> {
        let message_id = delivery.properties.message_id.clone();
        delivery.stream_offset.map(|offset| Self { offset, message_id })
    }

    pub(super) fn of_amqp(delivery: &lapin::message::Delivery) -> Option<Self> {
        let properties = Properties::from_amqp(&delivery.properties);
        properties.header_int(STREAM_OFFSET).map(|offset| Self { offset, message_id: properties.message_id })
    }

    pub(super) fn resume(&self, first: &Self) -> Resumed {
        match first.offset.cmp(&self.offset) {
            std::cmp::Ordering::Equal if first.message_id == self.message_id => Resumed::Repeated,
            std::cmp::Ordering::Greater => Resumed::Later,
            _ => Resumed::Elsewhere,
        }
    }
}

/// The `x-stream-offset` to subscribe with.
pub(super) fn argument(last: Option<&Position>) -> AMQPValue {
    last.map_or_else(|| AMQPValue::LongString("first".into()), |last| AMQPValue::LongLongInt(last.offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: i64, message_id: &str) -> Position {
        Position { offset, message_id: Some(message_id.to_owned()) }
    }

    #[test]
    fn reading_resumes_only_after_the_message_that_was_read_last() {
        let last = at(7, "a");
        assert_eq!(last.resume(&at(7, "a")), Resumed::Repeated);
        assert_eq!(last.resume(&at(7, "b")), Resumed::Elsewhere, "the stream was recreated");
        assert_eq!(last.resume(&at(3, "a")), Resumed::Elsewhere);
        assert_eq!(last.resume(&at(9, "c")), Resumed::Later, "the stream has dropped its first messages");
    }

    #[test]
    fn a_subscription_asks_for_the_last_message_that_was_read() {
        assert_eq!(argument(Some(&at(7, "a"))), AMQPValue::LongLongInt(7));
        assert_eq!(argument(None), AMQPValue::LongString("first".into()));
    }
}
