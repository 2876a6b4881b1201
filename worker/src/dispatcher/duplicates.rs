//! Deduplicates deliveries of messages that are in flight on this worker, or that were answered but whose acknowledgement did not reach the
//! broker.
//!
//! The broker redelivers a message that is unacknowledged for longer than its `consumer_timeout` or whose connection was lost, perhaps to
//! the worker that still runs its job. Such a redelivery waits here for the first delivery and is acknowledged when that has been answered.
//! Otherwise the job would run again and again. [`super::renewal`] keeps the broker from dead-lettering the message for so many deliveries.

use std::collections::{HashMap, VecDeque};

use super::MessageNo;

/// Maximum number of answered messages to remember. An outage leaves at most as many as were in flight, which the prefetch bounds.
const ANSWERED_MAX: usize = 1024;

/// Identifies a message by its id and body length. A message with the same id but another length is not a duplicate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct MessageKey {
    pub(super) id: String,
    pub(super) bytes: usize,
}

/// The messages in flight, the redeliveries that wait for them, and the answered messages.
#[derive(Debug, Default)]
pub(super) struct Duplicates {
    in_flight: HashMap<MessageKey, MessageNo>,
    /// The redeliveries that wait for a delivery, by that delivery.
    waiting: HashMap<MessageNo, Vec<MessageNo>>,
    answered: VecDeque<blake3::Hash>,
}

impl MessageKey {
    /// Returns the key of a message. A message without an id is identified by its body, which contains the ids of its jobs.
    pub(crate) fn of(message_id: Option<&str>, body: &[u8]) -> Self {
        let id = message_id.map_or_else(|| digest("", body).to_string(), str::to_owned);
        Self { id, bytes: body.len() }
    }
}

/// Hashes the id and body of a message, which identify it.
pub(crate) fn digest(message_id: &str, body: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(message_id.as_bytes()).update(&[0]).update(body);
    hasher.finalize()
}

impl Duplicates {
    /// Marks the message as in flight. A redelivery of a message in flight waits instead: returns the delivery that it waits for, until
    /// [`Self::end`] of that delivery.
    pub(super) fn begin(&mut self, message: MessageNo, key: &MessageKey, redelivered: bool) -> Option<MessageNo> {
        if redelivered && let Some(first) = self.in_flight.get(key).copied() {
            self.wait(message, first);
            return Some(first);
        }
        self.in_flight.insert(key.clone(), message);
        None
    }

    pub(super) fn wait(&mut self, message: MessageNo, first: MessageNo) {
        self.waiting.entry(first).or_default().push(message);
    }

    /// Returns the redeliveries that wait for a delivery.
    pub(super) fn waiting_for(&self, first: MessageNo) -> &[MessageNo] {
        self.waiting.get(&first).map_or(&[], Vec::as_slice)
    }

    /// Ends a redelivery's wait for the first delivery.
    pub(super) fn leave(&mut self, message: MessageNo, first: MessageNo) {
        self.waiting.entry(first).or_default().retain(|waiting| *waiting != message);
    }

    /// Removes a message. Returns the redeliveries that waited for it.
    pub(super) fn end(&mut self, message: MessageNo, key: &MessageKey) -> Vec<MessageNo> {
        // Another message with the same key may have taken its place.
        if self.in_flight.get(key) == Some(&message) {
            self.in_flight.remove(key);
        }
        self.waiting.remove(&message).unwrap_or_default()
    }

    /// Remembers a message whose outcomes are recorded but whose acknowledgement did not reach the broker. Must not be used if one of its
    /// jobs was published again, because that message has the same id and body.
    pub(super) fn remember(&mut self, digest: blake3::Hash) {
        if self.answered.len() == ANSWERED_MAX {
            self.answered.pop_front();
        }
        self.answered.push_back(digest);
    }

    /// Returns whether this worker has answered the message before.
    pub(super) fn was_answered(&self, digest: blake3::Hash) -> bool {
        self.answered.contains(&digest)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.in_flight.is_empty() && self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: MessageNo = MessageNo(1);
    const SECOND: MessageNo = MessageNo(2);
    const THIRD: MessageNo = MessageNo(3);

    fn same() -> MessageKey {
        MessageKey::of(Some("m"), b"1")
    }

    #[test]
    fn messages_without_an_id_do_not_wait_for_one_another() {
        let mut duplicates = Duplicates::default();
        assert_eq!(duplicates.begin(FIRST, &MessageKey::of(None, b"1"), true), None);
        assert_eq!(duplicates.begin(SECOND, &MessageKey::of(None, b"2"), true), None);
        assert_eq!(duplicates.begin(THIRD, &MessageKey::of(None, b"1"), true), Some(FIRST));
    }

    #[test]
    fn a_redelivery_waits_for_the_first_delivery_and_a_namesake_does_not() {
        let mut duplicates = Duplicates::default();
        assert_eq!(duplicates.begin(FIRST, &same(), false), None);
        assert_eq!(duplicates.begin(SECOND, &same(), false), None);
        assert!(duplicates.end(FIRST, &same()).is_empty());
        assert_eq!(duplicates.begin(THIRD, &same(), true), Some(SECOND), "the namesake is in flight");
        assert_eq!(duplicates.end(SECOND, &same()), [THIRD]);
        assert_eq!(duplicates.begin(THIRD, &same(), true), None);
        assert!(duplicates.end(THIRD, &same()).is_empty() && duplicates.is_empty());
    }

    #[test]
    fn only_so_many_answered_messages_are_remembered() {
        let mut duplicates = Duplicates::default();
        let of = |number: usize| digest(&number.to_string(), b"");
        (0..=ANSWERED_MAX).for_each(|number| duplicates.remember(of(number)));
        assert!(!duplicates.was_answered(of(0)) && duplicates.was_answered(of(ANSWERED_MAX)));
    }
}
