//! Deliveries and their settlement.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use futures::future::{join_all, try_join_all};
use lapin::types::AMQPValue;

use crate::{
    Properties, SettleError,
    link::{Frame, OpenChannel},
};

mod unsettled;

pub(crate) use unsettled::{Ack, Tag, Unsettled};

/// A message from a queue. Dropped unsettled, it stays assigned to this process until its consumer and all ackers of that channel are
/// dropped; then the broker redelivers it.
pub struct Delivery {
    pub body: Vec<u8>,
    /// The length of the whole body, of which the consumer may have kept less: see [`crate::BodyBound`].
    pub body_bytes: usize,
    pub properties: Properties,
    pub exchange: String,
    pub routing_key: String,
    pub redelivered: bool,
    /// The number of earlier deliveries, as quorum queues count them. Of other queues 1 if the message was redelivered.
    pub delivery_count: u64,
    /// The offset in the stream, if it comes from one.
    pub stream_offset: Option<i64>,
    pub acker: Acker,
}

/// Settles one delivery.
pub struct Acker {
    /// lapin's delivery without its body. It knows whether its channel is still open.
    delivery: Box<lapin::message::Delivery>,
    /// The channel that the delivery came on. Closing it would requeue everything unsettled, so each delivery
    /// keeps its channel open.
    channel: Arc<OpenChannel>,
}

/// A queue from which the broker dead-lettered a message because it had expired, was rejected or was delivered too often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    pub queue: String,
    /// The broker's name for the reason, such as `expired` or `delivery_limit`.
    pub reason: String,
}

/// The result of an ack or a requeue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    Sent,
    /// The channel of the delivery is closed. The broker redelivers the message to any consumer.
    Stale,
}

/// The broker's header of a message that was read from a stream.
pub(crate) const STREAM_OFFSET: &str = "x-stream-offset";
/// The limit for writing a settling frame. The broker does not answer such a frame, so there is no reason to wait long.
const SETTLE_DEADLINE: Duration = Duration::from_secs(10);

impl Delivery {
    pub(crate) fn new(mut delivery: lapin::message::Delivery, channel: Arc<OpenChannel>) -> Self {
        let properties = Properties::from_amqp(&delivery.properties);
        let stream_offset = properties.header_int(STREAM_OFFSET);
        channel.delivered(delivery.delivery_tag);
        let body = std::mem::take(&mut delivery.data);
        Self {
            body_bytes: body.len(),
            body,
            stream_offset,
            exchange: delivery.exchange.to_string(),
            routing_key: delivery.routing_key.to_string(),
            redelivered: delivery.redelivered,
            delivery_count: earlier_deliveries(&properties, delivery.redelivered),
            properties,
            acker: Acker { delivery: Box::new(delivery), channel },
        }
    }

    /// Drops the part of the body beyond the bound.
    pub(crate) fn cut(&mut self, bytes_max: usize) {
        if self.body.len() > bytes_max {
            // A copy, because shrinking may leave a small body at the beginning of a large allocation.
            self.body = self.body[..bytes_max].to_vec();
        }
    }

    /// Whether the consumer has kept only the beginning of the body.
    pub fn is_cut(&self) -> bool {
        self.body.len() < self.body_bytes
    }

    /// Splits the delivery, so that tasks can borrow from the body while the acker is held elsewhere.
    pub fn into_parts(self) -> (Vec<u8>, Properties, Acker) {
        (self.body, self.properties, self.acker)
    }

    /// The queues from which the broker dead-lettered the message, the latest first. Their names are empty where the producer wrote
    /// something else into the header.
    pub fn deaths(&self) -> Vec<Death> {
        match self.header("x-death") {
            Some(AMQPValue::FieldArray(deaths)) => deaths.as_slice().iter().map(Death::of).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether the producer named more routing keys in the `CC` header. RabbitMQ checks its permission for the first key only.
    pub fn has_more_keys(&self) -> bool {
        self.header("CC").is_some()
    }

    fn header(&self, name: &str) -> Option<&AMQPValue> {
        self.acker.delivery.properties.headers().as_ref()?.inner().get(name)
    }

    /// Acknowledges the message. If cancelled, the ack may or may not have been sent.
    pub async fn ack(self) -> Result<Settled, SettleError> {
        self.acker.ack().await
    }

    /// Requeues the message. If cancelled, that may or may not have happened.
    pub async fn requeue(self) -> Result<Settled, SettleError> {
        self.acker.requeue().await
    }
}

/// The number of earlier deliveries. RabbitMQ 4.3 and later count all of them in a header of their own, and in the older one only those that
/// failed.
fn earlier_deliveries(properties: &Properties, redelivered: bool) -> u64 {
    let count = |name| properties.header_int(name).and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
    count("x-delivery-count").max(count("x-acquired-count")).max(u64::from(redelivered))
}

impl Death {
    fn of(entry: &AMQPValue) -> Self {
        let text = |name: &str| match entry {
            AMQPValue::FieldTable(entry) => match entry.inner().get(name) {
                Some(AMQPValue::LongString(text)) => String::from_utf8_lossy(text.as_bytes()).into_owned(),
                _ => String::new(),
            },
            _ => String::new(),
        };
        Self { queue: text("queue"), reason: text("reason") }
    }
}

impl Acker {
    /// Acknowledges the message. If cancelled, the ack may or may not have been sent.
    pub async fn ack(&self) -> Result<Settled, SettleError> {
        self.settle(|| self.channel.ack([self.tag()])).await
    }

    /// Queues the acknowledgement of the message, and does not wait until its frame is written. If the connection is lost before, the broker
    /// redelivers the message.
    pub fn begin_ack(&self) {
        if self.is_live() {
            drop(self.channel.ack([self.tag()]));
        }
    }

    /// Acknowledges several messages, of each channel with as few frames as possible. The results are in the order of the messages. If
    /// cancelled, the acks may or may not have been sent.
    pub async fn ack_all(ackers: &[&Self]) -> Vec<Result<Settled, SettleError>> {
        let mut channels: HashMap<_, Vec<&Self>> = HashMap::new();
        for acker in ackers {
            channels.entry(acker.channel_address()).or_default().push(acker);
        }
        let acks = channels.into_iter().map(async |(channel, ackers)| {
            let one = ackers[0];
            let settled = one.settle(|| one.channel.ack(ackers.iter().map(|acker| acker.tag()))).await;
            (channel, settled)
        });
        let settled: HashMap<_, _> = join_all(acks).await.into_iter().collect();
        ackers.iter().map(|acker| settled[&acker.channel_address()].clone()).collect()
    }

    /// Requeues the message. If cancelled, that may or may not have happened.
    pub async fn requeue(&self) -> Result<Settled, SettleError> {
        self.settle(|| self.channel.requeue(self.tag()).into_iter().collect()).await
    }

    /// Whether settling would still reach the broker. If not, the message is redelivered and work on it is wasted.
    pub fn is_live(&self) -> bool {
        self.channel.is_live() && self.delivery.usable()
    }

    /// The number of consumers that a quorum queue counts for the subscription of this delivery: the current one, and each that was
    /// cancelled for a change of prefetch and has unsettled deliveries.
    pub fn consumers(&self) -> u32 {
        1 + self.channel.cancelled_consumers() as u32
    }

    fn channel_address(&self) -> usize {
        Arc::as_ptr(&self.channel).addr()
    }

    fn tag(&self) -> Tag {
        self.delivery.delivery_tag
    }

    /// Waits until the frames are written. There are none if the delivery was settled before.
    async fn settle<'a>(&self, frames: impl FnOnce() -> Vec<Frame<'a>>) -> Result<Settled, SettleError> {
        if !self.is_live() {
            return Ok(Settled::Stale);
        }
        let frames = frames();
        if frames.is_empty() {
            return Ok(Settled::Stale);
        }
        match tokio::time::timeout(SETTLE_DEADLINE, try_join_all(frames)).await {
            Ok(Ok(_)) => Ok(Settled::Sent),
            // An error here always means that the channel or the connection has ended.
            Ok(Err(_)) => Ok(Settled::Stale),
            // lapin silently drops a frame that it gets just as the connection ends.
            Err(_) if !self.is_live() => Ok(Settled::Stale),
            Err(_) => Err(SettleError::Timeout { waited: SETTLE_DEADLINE }),
        }
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("body_bytes", &self.body_bytes)
            .field("properties", &self.properties)
            .field("exchange", &self.exchange)
            .field("routing_key", &self.routing_key)
            .field("redelivered", &self.redelivered)
            .field("delivery_count", &self.delivery_count)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Acker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acker").field("live", &self.is_live()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HeaderValue;

    #[test]
    fn earlier_deliveries_are_those_that_the_broker_counts_in_either_header() {
        let counted = |headers: &[(&str, i64)], redelivered| {
            let headers = headers.iter().map(|(name, count)| ((*name).to_owned(), HeaderValue::from(*count))).collect();
            earlier_deliveries(&Properties { headers, ..Properties::default() }, redelivered)
        };
        assert_eq!(counted(&[], false), 0);
        assert_eq!(counted(&[], true), 1);
        assert_eq!(counted(&[("x-delivery-count", 3)], true), 3);
        assert_eq!(counted(&[("x-acquired-count", 5), ("x-delivery-count", 2)], true), 5);
        assert_eq!(counted(&[("x-delivery-count", -1)], false), 0);
    }
}
