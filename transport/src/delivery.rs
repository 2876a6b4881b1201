//! What arrives, and how it is settled.

use std::{fmt, sync::Arc, time::Duration};

use lapin::{
    options::{BasicAckOptions, BasicNackOptions},
    types::AMQPValue,
};

use crate::{Properties, SettleError, link::OpenChannel};

/// A message from a queue. Dropped unsettled, it stays with this process until its consumer and all acker handles of it are
/// gone; then the broker delivers it again.
pub struct Delivery {
    pub body: Vec<u8>,
    pub properties: Properties,
    pub exchange: String,
    pub routing_key: String,
    pub redelivered: bool,
    /// How often it was delivered before: counted by quorum queues, else one if it was redelivered at all.
    pub delivery_count: u64,
    /// Whether the broker counts deliveries of this queue. Where not, `delivery_count` is 0 or 1.
    pub counted: bool,
    /// Its place in the stream that it was read from.
    pub stream_offset: Option<i64>,
    pub acker: Acker,
}

/// Settles one delivery.
pub struct Acker {
    /// Emptied of its body; lapin keeps its own acker's type to itself.
    delivery: Box<lapin::message::Delivery>,
    /// The channel that the delivery came on. Closing it would hand everything unsettled back, so whoever holds a delivery
    /// holds its channel open.
    channel: Arc<OpenChannel>,
}

/// A queue that the broker took a message out of by itself: it had expired there, was refused or was delivered too often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    pub queue: String,
    /// The broker's word, such as `expired` or `delivery_limit`.
    pub reason: String,
}

/// What became of an ack or a requeue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    Sent,
    /// The channel of the delivery is gone. The broker delivers it again, to whomever.
    Stale,
}

/// The broker's header of a message that was read from a stream.
pub(crate) const STREAM_OFFSET: &str = "x-stream-offset";
/// A settling frame waits behind others for the socket at most. It answers for nothing, so there is no reason to wait long.
const SETTLE_DEADLINE: Duration = Duration::from_secs(10);

impl Delivery {
    pub(crate) fn new(mut delivery: lapin::message::Delivery, channel: Arc<OpenChannel>) -> Self {
        let properties = Properties::from_amqp(&delivery.properties);
        let counted = properties.header_int("x-delivery-count").and_then(|count| u64::try_from(count).ok());
        let stream_offset = properties.header_int(STREAM_OFFSET);
        Self {
            body: std::mem::take(&mut delivery.data),
            stream_offset,
            properties,
            exchange: delivery.exchange.to_string(),
            routing_key: delivery.routing_key.to_string(),
            redelivered: delivery.redelivered,
            delivery_count: counted.unwrap_or_else(|| u64::from(delivery.redelivered)),
            counted: counted.is_some(),
            acker: Acker { delivery: Box::new(delivery), channel },
        }
    }

    /// Body, properties and acker apart, so that the body can be borrowed from while the acker waits.
    pub fn into_parts(self) -> (Vec<u8>, Properties, Acker) {
        (self.body, self.properties, self.acker)
    }

    /// The broker's account of the queues that the message died in, the latest first.
    pub fn deaths(&self) -> Vec<Death> {
        let headers = self.acker.delivery.properties.headers();
        let Some(AMQPValue::FieldArray(deaths)) = headers.as_ref().and_then(|table| table.inner().get("x-death"))
        else {
            return Vec::new();
        };
        deaths.as_slice().iter().filter_map(Death::of).collect()
    }

    /// See [`Acker::ack`].
    pub async fn ack(self) -> Result<Settled, SettleError> {
        self.acker.ack().await
    }

    /// See [`Acker::requeue`].
    pub async fn requeue(self) -> Result<Settled, SettleError> {
        self.acker.requeue().await
    }
}

impl Death {
    fn of(entry: &AMQPValue) -> Option<Self> {
        let AMQPValue::FieldTable(entry) = entry else { return None };
        let text = |name: &str| match entry.inner().get(name)? {
            AMQPValue::LongString(text) => Some(String::from_utf8_lossy(text.as_bytes()).into_owned()),
            _ => None,
        };
        Some(Self { queue: text("queue")?, reason: text("reason")? })
    }
}

impl Acker {
    /// Tells the broker to forget the message. Cancelled, the ack may or may not have been sent.
    pub async fn ack(self) -> Result<Settled, SettleError> {
        self.settled(self.delivery.ack(BasicAckOptions { multiple: false })).await
    }

    /// Puts the message back into its queue. Cancelled, that may or may not have happened.
    pub async fn requeue(self) -> Result<Settled, SettleError> {
        self.settled(self.delivery.nack(BasicNackOptions { multiple: false, requeue: true })).await
    }

    /// Whether settling would still reach the broker. Where not, the message comes again and work on it is for nothing.
    pub fn is_live(&self) -> bool {
        self.channel.is_live() && self.delivery.usable()
    }

    async fn settled(&self, frame: impl Future<Output = lapin::Result<bool>>) -> Result<Settled, SettleError> {
        if !self.is_live() {
            return Ok(Settled::Stale);
        }
        match tokio::time::timeout(SETTLE_DEADLINE, frame).await {
            Ok(Ok(true)) => Ok(Settled::Sent),
            // An error here is always the channel's or the connection's end.
            Ok(Ok(false) | Err(_)) => Ok(Settled::Stale),
            // A frame that is handed over just as the connection ends is never written, and lapin tells nobody.
            Err(_) if !self.is_live() => Ok(Settled::Stale),
            Err(_) => Err(SettleError::Timeout { waited: SETTLE_DEADLINE }),
        }
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("body_bytes", &self.body.len())
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
