//! The messages that one confirm channel has published and that are not yet confirmed.
//!
//! A return has no delivery tag, and lapin attaches it to the next confirm that it completes, so returns are matched by
//! message id. The message is then marked as unroutable; its caller gets the outcome when its own confirm comes.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tracing::warn;

use super::{Done, Request};
use crate::{Message, PublishError};

/// The unconfirmed messages of one confirm channel, in the order in which they were accepted.
#[derive(Debug, Default)]
pub(super) struct Pending {
    entries: BTreeMap<Number, Entry>,
    /// All messages have the same time limit, so the order in which they were accepted is the order of their deadlines.
    deadlines: VecDeque<(Instant, Number)>,
    next: Number,
}

/// Entries of settled messages that may stay in `deadlines` before they are removed.
const DEADLINES_KEPT: usize = 64;

/// A message's position among those of its confirm channel.
pub(super) type Number = u64;

#[derive(Debug)]
struct Entry {
    message: Arc<Message>,
    /// Taken when the caller has got the outcome. The entry stays until the broker confirms or the channel ends, because a confirm
    /// that is dropped early could carry another message's return.
    done: Option<Done>,
    sent: bool,
    returned: bool,
    _room: OwnedSemaphorePermit,
}

/// The broker's confirm for one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Confirm {
    Ack,
    Nack,
}

/// A message that the broker returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Return {
    pub(super) message_id: Option<String>,
    pub(super) exchange: String,
    pub(super) routing_key: String,
}

impl Pending {
    pub(super) fn add(&mut self, request: Request) -> Number {
        let Request { message, deadline, done, room } = request;
        let number = self.next;
        self.next += 1;
        self.deadlines.push_back((deadline, number));
        let entry = Entry { message, done: Some(done), sent: false, returned: false, _room: room };
        self.entries.insert(number, entry);
        number
    }

    /// The message to send under this number, if its caller still waits for the outcome.
    pub(super) fn take_to_send(&mut self, number: Number) -> Option<Arc<Message>> {
        let entry = self.entries.get_mut(&number)?;
        if entry.done.as_ref().is_none_or(Done::is_closed) {
            self.entries.remove(&number);
            return None;
        }
        entry.sent = true;
        entry.returned = false;
        Some(entry.message.clone())
    }

    /// Every number, oldest first.
    pub(super) fn numbers(&self) -> Vec<Number> {
        self.entries.keys().copied().collect()
    }

    /// The oldest number from this one on.
    pub(super) fn first_from(&self, number: Number) -> Option<Number> {
        self.entries.range(number..).next().map(|(number, _)| *number)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Marks the oldest message that matches the return. Messages with the same id and destination are either all returned or none.
    pub(super) fn mark_returned(&mut self, returned: &Return) {
        let fits = |entry: &&mut Entry| {
            let message = &entry.message;
            entry.sent
                && !entry.returned
                && message.properties.message_id == returned.message_id
                && message.exchange == returned.exchange
                && message.routing_key == returned.routing_key
        };
        match self.entries.values_mut().find(fits) {
            Some(entry) => entry.returned = true,
            None => warn!(message_id = ?returned.message_id, "returned message matches no pending publish"),
        }
    }

    pub(super) fn settle(&mut self, number: Number, confirm: Confirm) {
        let Some(entry) = self.entries.remove(&number) else { return };
        self.forget_deadlines_of_the_settled();
        let routing_key = || entry.message.routing_key.clone();
        let outcome = match confirm {
            _ if entry.returned => Err(PublishError::Unroutable {
                exchange: entry.message.exchange.to_owned(),
                routing_key: routing_key(),
            }),
            Confirm::Ack => Ok(()),
            Confirm::Nack => Err(PublishError::Nacked { routing_key: routing_key() }),
        };
        entry.answer(outcome);
    }

    /// Removes them, because otherwise they would stay until the deadline of the oldest unconfirmed message.
    fn forget_deadlines_of_the_settled(&mut self) {
        if self.deadlines.len() > DEADLINES_KEPT + 2 * self.entries.len() {
            self.deadlines.retain(|(_, number)| self.entries.contains_key(number));
        }
    }

    pub(super) fn refuse(&mut self, number: Number, error: impl FnOnce(&Message) -> PublishError) {
        if let Some(entry) = self.entries.remove(&number) {
            let error = error(&entry.message);
            entry.answer(Err(error));
        }
    }

    /// The channel has ended, so its messages get no confirm any more. Entries whose callers have their outcome are removed.
    pub(super) fn channel_ended(&mut self) {
        self.entries.retain(|_, entry| entry.done.as_ref().is_some_and(|done| !done.is_closed()));
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.front().map(|(deadline, _)| *deadline)
    }

    /// Fails the messages whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant, waited: Duration, blocked: Option<&String>) {
        while let Some((_, number)) = self.deadlines.pop_front_if(|(deadline, _)| *deadline <= now) {
            let Some(entry) = self.entries.get_mut(&number) else { continue };
            let Some(done) = entry.done.take() else { continue };
            let _caller_gone = done.send(Err(entry_error(entry.sent, waited, blocked)));
            if !entry.sent {
                self.entries.remove(&number);
            }
        }
    }

    /// The confirm channel has ended.
    pub(super) fn close(&mut self, waited: Duration) {
        self.deadlines.clear();
        for entry in std::mem::take(&mut self.entries).into_values() {
            let blocked = Some("this client closed the connection".to_owned());
            let error = if entry.sent { PublishError::Unknown { waited, blocked } } else { PublishError::Closed };
            entry.answer(Err(error));
        }
    }
}

impl Entry {
    fn answer(mut self, outcome: Result<(), PublishError>) {
        if let Some(done) = self.done.take() {
            let _caller_gone = done.send(outcome);
        }
    }
}

fn entry_error(sent: bool, waited: Duration, blocked: Option<&String>) -> PublishError {
    let blocked = blocked.cloned();
    if sent { PublishError::Unknown { waited, blocked } } else { PublishError::Timeout { waited, blocked } }
}

#[cfg(test)]
mod tests;
