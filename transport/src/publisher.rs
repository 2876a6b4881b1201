//! Confirmed publishing: many unconfirmed messages at once, each with its own outcome.
//!
//! A few tasks publish, each on its own AMQP channel in confirm mode. A task keeps every message until the broker confirms it. When its
//! channel ends, the task opens another and sends the unconfirmed messages again under the same message ids.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use gpufleet_schema::{MessageId, bounds::MESSAGE_BYTES_MAX};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, timeout, timeout_at},
};
use tracing::warn;

use crate::{Message, PublishError, link::Link};

mod confirm_channel;
mod pending;

/// Number of confirm channels for messages. Two to four are fastest for quorum queues; the second already hides most of the first one's
/// latency.
const CONFIRM_CHANNELS: usize = 2;
/// The room for unconfirmed bodies, which stay in memory so that they can be sent again: 64 MiB, or four of the largest messages.
const ROOM_BYTES: usize = 64 << 20;
const ROOM_UNIT_BYTES: usize = 1 << 10;
/// The least room that a message takes, so that at most 4096 are unconfirmed. Throughput stopped growing at about 1000.
const UNITS_PER_MESSAGE: usize = 16;
const ROOM_UNITS: usize = ROOM_BYTES / ROOM_UNIT_BYTES;
/// The least room that a message with events takes, so that at most 8 are unconfirmed. RabbitMQ stops reading from a connection that has
/// more than 32 messages for a queue that takes none, and a ledger queue without a majority must delay no task or reply.
const UNITS_PER_EVENTS: usize = ROOM_UNITS / 8;

#[derive(Debug)]
pub(crate) struct Publisher {
    link: Arc<Link>,
    channels: Vec<mpsc::UnboundedSender<Request>>,
    /// Written by [`Publisher::publish`] only: the channel for the next message.
    next_channel: AtomicUsize,
    room: Arc<Semaphore>,
    /// The least room that a message takes.
    units_min: usize,
    closed: AtomicBool,
}

/// A message for a confirm channel.
#[derive(Debug)]
struct Request {
    message: Arc<Message>,
    deadline: Instant,
    done: Done,
    room: OwnedSemaphorePermit,
}

type Done = oneshot::Sender<Result<(), PublishError>>;

impl Publisher {
    /// Creates the publisher of tasks, replies and orders.
    pub(crate) fn of_messages(link: &Arc<Link>) -> Self {
        Self::start(link, CONFIRM_CHANNELS, UNITS_PER_MESSAGE)
    }

    /// Creates the publisher of events.
    pub(crate) fn of_events(link: &Arc<Link>) -> Self {
        Self::start(link, 1, UNITS_PER_EVENTS)
    }

    fn start(link: &Arc<Link>, channels: usize, units_min: usize) -> Self {
        Self {
            link: link.clone(),
            channels: (0..channels).map(|_| confirm_channel::start(link.clone())).collect(),
            next_channel: AtomicUsize::new(0),
            room: Arc::new(Semaphore::new(ROOM_UNITS)),
            units_min,
            closed: AtomicBool::new(false),
        }
    }

    pub(crate) async fn publish(&self, mut message: Arc<Message>) -> Result<(), PublishError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(PublishError::Closed);
        }
        self.check(&message)?;
        if message.properties.message_id.is_none() {
            Arc::make_mut(&mut message).properties.message_id = Some(MessageId::new().to_string());
        }
        let waited = self.link.options.confirm_deadline;
        let deadline = Instant::now() + waited;
        let room =
            timeout_at(deadline, self.room.clone().acquire_many_owned(units(message.body.len(), self.units_min)))
                .await
                .map_err(|_| PublishError::Timeout { waited, blocked: self.link.trouble() })?
                .expect("the semaphore is never closed");
        let (done, outcome) = oneshot::channel();
        let channel = &self.channels[self.next_channel.fetch_add(1, Ordering::Relaxed) % self.channels.len()];
        channel.send(Request { message, deadline, done, room }).map_err(|_| PublishError::Closed)?;
        // The channel's task enforces the deadline.
        outcome.await.unwrap_or(Err(PublishError::Closed))
    }

    fn check(&self, message: &Message) -> Result<(), PublishError> {
        message.check(MESSAGE_BYTES_MAX)?;
        let user = self.link.options.urls.user();
        match &message.properties.user_id {
            Some(name) if name != user => {
                let reason = format!("the message has user id {name:?}, but the connection belongs to user {user:?}");
                Err(PublishError::Refused { reason })
            }
            _ => Ok(()),
        }
    }

    /// Refuses new messages and waits for the unconfirmed ones, up to the confirm deadline.
    pub(crate) async fn drain(&self) {
        self.closed.store(true, Ordering::Release);
        // The semaphore is fair, so callers that wait for room already are served first.
        let all = u32::try_from(ROOM_UNITS).expect("a small constant");
        let deadline: Duration = self.link.options.confirm_deadline;
        if timeout(deadline, self.room.acquire_many(all)).await.is_err() {
            warn!("closing the connection with unconfirmed messages");
        }
    }
}

fn units(body_bytes: usize, units_min: usize) -> u32 {
    let units = body_bytes.div_ceil(ROOM_UNIT_BYTES).max(units_min);
    u32::try_from(units).expect("bodies are bounded to 16 MiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_message_finds_room_and_small_ones_are_bounded_in_number() {
        for (units_min, messages_max) in [(UNITS_PER_MESSAGE, 4096), (UNITS_PER_EVENTS, 8)] {
            assert!(units(MESSAGE_BYTES_MAX, units_min) as usize <= ROOM_UNITS);
            assert_eq!(ROOM_UNITS / units(0, units_min) as usize, messages_max);
        }
        assert_eq!(units(16 * 1024 + 1, UNITS_PER_MESSAGE), 17);
    }
}
