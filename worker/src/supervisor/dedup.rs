//! Deduplicates deliveries: messages in flight on this worker, and answered messages whose acknowledgement did not reach the broker.
//!
//! The broker redelivers a message that is unacknowledged for longer than its `consumer_timeout` or whose connection was lost, perhaps to
//! the worker that still runs its job. Such a delivery waits here for the first one and is acknowledged when that has been answered, so
//! that the job does not run again and again.

use std::collections::{HashMap, VecDeque};

use tokio_util::sync::CancellationToken;

use super::envelope::Envelope;
use crate::shared_state::SharedState;

/// The most answered messages to remember. An outage leaves as many as were in flight, which the prefetch bounds.
const ANSWERED_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct InFlightMessages {
    messages: SharedState<HashMap<Key, CancellationToken>>,
    answered: SharedState<VecDeque<blake3::Hash>>,
}

/// Message id and body length. Another message with the same id but another length is not a duplicate.
type Key = (String, usize);

/// Marks a message as in flight until dropped.
#[derive(Debug)]
pub(super) struct InFlight<'a> {
    messages: &'a SharedState<HashMap<Key, CancellationToken>>,
    key: Key,
    end: CancellationToken,
}

impl InFlightMessages {
    /// Marks the message as in flight. A redelivery waits until the first delivery has been settled.
    pub(super) async fn take(&self, envelope: &Envelope, body: &[u8]) -> InFlight<'_> {
        self.hold(key(envelope.properties.message_id.as_deref(), body), envelope.redelivered).await
    }

    async fn hold(&self, key: Key, comes_again: bool) -> InFlight<'_> {
        let end = CancellationToken::new();
        while let Some(first) = self.put(&key, &end, comes_again) {
            first.cancelled().await;
        }
        InFlight { messages: &self.messages, key, end }
    }

    /// Checks and inserts under one lock, so that only one of several redeliveries continues. Returns the delivery to wait for, if any.
    fn put(&self, key: &Key, end: &CancellationToken, comes_again: bool) -> Option<CancellationToken> {
        let mut messages = self.messages.lock();
        if let Some(first) = messages.get(key).filter(|first| comes_again && !first.is_cancelled()) {
            return Some(first.clone());
        }
        messages.insert(key.clone(), end.clone());
        None
    }

    /// Remembers a message whose outcomes are recorded but whose acknowledgement did not reach the broker. Not used if one of its jobs was
    /// published again, because that message has the same id and body.
    pub(super) fn remember(&self, message_id: &str, body: &[u8]) {
        let mut answered = self.answered.lock();
        if answered.len() == ANSWERED_MAX {
            answered.pop_front();
        }
        answered.push_back(digest(message_id, body));
    }

    /// Whether the message was answered here before.
    pub(super) fn was_answered(&self, envelope: &Envelope, body: &[u8]) -> bool {
        let answered = self.answered.lock();
        envelope.redelivered && !answered.is_empty() && answered.contains(&digest(envelope.message_id(), body))
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.end.cancel();
        let mut messages = self.messages.lock();
        // Another message with the same id may have replaced it.
        if messages.get(&self.key).is_some_and(CancellationToken::is_cancelled) {
            messages.remove(&self.key);
        }
    }
}

/// A message without an id is identified by its body, which contains the ids of its jobs.
fn key(message_id: Option<&str>, body: &[u8]) -> Key {
    let id = message_id.map_or_else(|| digest("", body).to_string(), str::to_owned);
    (id, body.len())
}

fn digest(message_id: &str, body: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(message_id.as_bytes()).update(&[0]).update(body);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn same() -> Key {
        key(Some("m"), b"1")
    }

    #[tokio::test]
    async fn messages_without_an_id_do_not_wait_for_one_another() {
        let in_flight = InFlightMessages::default();
        let _first = in_flight.hold(key(None, b"1"), true).await;
        let _other = in_flight.hold(key(None, b"2"), true).await;
        assert!(futures::poll!(Box::pin(in_flight.hold(key(None, b"1"), true))).is_pending());
    }

    #[tokio::test]
    async fn a_redelivery_waits_for_the_first_delivery_and_a_namesake_does_not() {
        let in_flight = InFlightMessages::default();
        let first = in_flight.hold(same(), false).await;
        let namesake = in_flight.hold(same(), false).await;
        drop(first);
        let mut again = Box::pin(in_flight.hold(same(), true));
        assert!(futures::poll!(&mut again).is_pending(), "the namesake is in flight");
        drop(namesake);
        again.await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn of_many_redeliveries_one_is_handled_at_a_time() {
        static HANDLED: AtomicUsize = AtomicUsize::new(0);
        let in_flight: &InFlightMessages = Box::leak(Box::default());
        let first = in_flight.hold(same(), false).await;
        let copies: Vec<_> = (0..200)
            .map(|_| {
                tokio::spawn(async move {
                    let _held = in_flight.hold(same(), true).await;
                    assert_eq!(HANDLED.fetch_add(1, Ordering::SeqCst), 0, "another is at it");
                    tokio::task::yield_now().await;
                    HANDLED.fetch_sub(1, Ordering::SeqCst);
                })
            })
            .collect();
        drop(first);
        for copy in copies {
            copy.await.unwrap();
        }
        assert!(in_flight.messages.lock().is_empty());
    }
}
