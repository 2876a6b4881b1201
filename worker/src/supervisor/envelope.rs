//! The properties of a task message, checked before its body is decoded.

use std::sync::OnceLock;

use gpufleet_schema::{
    ClientName, Encoding, PoolName, Priority,
    bounds::{DELIVERIES_MAX, HEADER_TEXT_BYTES_MAX},
    topology::{
        FORWARDED, HEADER_ATTEMPT, HEADER_DELIVERIES, HEADER_LOSSES, HEADER_REPLIES, HEADER_REPLY_TOKEN,
        HEADER_UNAVAILABLE, REPLIES, REPLIES_IN_LISTS,
    },
};
use gpufleet_transport::{Acker, Death, Delivery, Properties};
use tokio::time::Instant;

use super::{
    admission::{Admission, foreign_client},
    clock::Received,
    content::RawMessage,
    task_queue::{Route, TaskQueue},
};
use crate::{
    dispatcher::{MessageInfo, MessageKey, digest},
    disposition::RetryHistory,
    forwarding::ForwardingHistory,
    scheduler::PoolId,
};

/// Maximum attempt number. Producers can write any number into a header, and one that exceeds the ledger's integers would make the job's
/// events invalid.
const ATTEMPT_MAX: u32 = 1_000_000;

/// The broker's reason for dead-lettering a message that was delivered too often.
const DELIVERED_TOO_OFTEN: &str = "delivery_limit";

/// A task message without its body.
#[derive(Debug)]
pub(super) struct Envelope {
    pub(super) properties: Properties,
    pub(super) pool: PoolName,
    /// The pool of the message's queue; the jobs run in the pool's executors.
    pub(super) pool_id: PoolId,
    pub(super) priority: Priority,
    /// How the message came into its queue.
    pub(super) route: Route,
    /// The number of this attempt: the number that the producer or the last retry wrote, plus one for each redelivery by the broker.
    /// Numbers may be skipped, but none is used twice for the same message. A redelivery need not have reached a worker: see
    /// [`gpufleet_transport::Subscription::set_prefetch`].
    pub(super) attempt: u32,
    pub(super) past: RetryHistory,
    pub(super) forwarding: ForwardingHistory,
    /// How often the broker has delivered this message before.
    pub(super) redeliveries: u64,
    /// The number of earlier deliveries of this message and its copies.
    pub(super) delivery_count: u64,
    /// Whether a worker, perhaps this one, has received the message before.
    pub(super) redelivered: bool,
    pub(super) received: Received,
    pub(super) acker: Acker,
    /// The user who first published the task, if the broker validated one.
    pub(super) user: Option<String>,
    /// Why the message must not run here because of its provenance or its user.
    pub(super) inadmissible: Option<String>,
    /// The time of the broker's first refusal of a message that must be published for this delivery.
    pub(super) refused_since: OnceLock<Instant>,
}

impl Envelope {
    pub(super) fn open(delivery: Delivery, queue: TaskQueue, admission: &Admission) -> RawMessage {
        let received = Received::now();
        let redeliveries = delivery.delivery_count;
        let redelivered = delivery.redelivered;
        let deaths = delivery.deaths();
        let inadmissible = admission.refusal(&delivery, &queue, &deaths);
        let user = admission.user(&delivery.exchange, &delivery.properties).map(str::to_owned);
        let forgotten = Forgotten::by(&deaths);
        let (body, properties, acker) = delivery.into_parts();
        let count = |name| properties.header_int(name).and_then(|value| u32::try_from(value).ok());
        let envelope = Self {
            attempt: attempt(count(HEADER_ATTEMPT), redeliveries.saturating_add(forgotten.attempts)),
            past: RetryHistory {
                losses: count(HEADER_LOSSES).unwrap_or(0),
                unavailable: count(HEADER_UNAVAILABLE).unwrap_or(0),
            },
            forwarding: ForwardingHistory::read(&properties),
            redeliveries,
            delivery_count: redeliveries
                .saturating_add(count(HEADER_DELIVERIES).unwrap_or(0).into())
                .saturating_add(forgotten.deliveries),
            redelivered,
            acker,
            refused_since: OnceLock::new(),
            user,
            inadmissible,
            pool: queue.pool,
            pool_id: queue.id,
            priority: queue.priority,
            route: queue.route,
            received,
            properties,
        };
        RawMessage { envelope, body }
    }

    /// Returns the part of the message that the dispatcher needs.
    pub(super) fn info(&self, queue: usize, body: &[u8]) -> MessageInfo {
        let readable = self.encoding().and_then(|_| self.reply_to());
        // A copy published by a worker has a count already at its first delivery.
        let redelivered = self.redelivered || self.delivery_count > 0;
        MessageInfo {
            queue,
            key: MessageKey::of(self.properties.message_id.as_deref(), body),
            digest: redelivered.then(|| digest(self.message_id(), body)),
            redelivered,
            attempt: self.attempt,
            redeliveries: self.redeliveries,
            delivery_count: self.delivery_count,
            past: self.past,
            inadmissible: self.inadmissible.clone(),
            unreadable: readable.err(),
        }
    }

    /// Returns the routing key with which the message returns to its queue.
    pub(super) fn task_key(&self) -> String {
        self.route.key(&self.pool, self.priority)
    }

    /// Returns whether settling would still reach the broker. If not, the broker redelivers the message, and work on it is wasted.
    pub(super) fn is_live(&self) -> bool {
        self.acker.is_live()
    }

    /// Returns whether a job of the message may have started before. A job that was handed back or left a list without starting looks the
    /// same. A job that was retried because of missing blobs does not: unless it had started, each such retry adds exactly one attempt.
    pub(super) fn may_have_started(&self) -> bool {
        self.redelivered || self.attempt > 1_u32.saturating_add(self.past.unavailable)
    }

    /// Returns the client that gets the reply to a task: the one that the task names, or else the message's. `None` if there is none, or if
    /// it does not belong to the task's user.
    pub(super) fn recipient<'a>(
        &self,
        named: Option<&'a ClientName>,
        reply_to: Option<&'a ClientName>,
    ) -> Option<&'a ClientName> {
        named.or(reply_to).filter(|client| foreign_client(self.user.as_deref(), client).is_none())
    }

    /// Returns whether the producer reads lists of replies.
    pub(super) fn reads_lists(&self) -> bool {
        self.properties.header_text(HEADER_REPLIES) == Some(REPLIES_IN_LISTS)
    }

    /// Returns the client's secret, which its replies carry.
    pub(super) fn reply_token(&self) -> Option<&str> {
        self.properties.header_text(HEADER_REPLY_TOKEN).filter(|token| token.len() <= HEADER_TEXT_BYTES_MAX)
    }

    /// Returns the body's encoding, according to its content type.
    pub(super) fn encoding(&self) -> Result<Encoding, String> {
        match self.properties.content_type.as_deref() {
            Some(text) => Encoding::of_content_type(text).ok_or_else(|| {
                let text: String = text.chars().take(64).collect();
                format!("content_type {text:?} is not supported; use application/msgpack or application/json")
            }),
            None => Err("the message has no content_type; use application/msgpack or application/json".to_owned()),
        }
    }

    /// Returns the client that gets replies if a task names none, from the message's `reply_to`: a client's name or its reply queue. Any
    /// other queue is an error, so that a producer can't make a worker publish to a queue that the producer may not use.
    pub(super) fn reply_to(&self) -> Result<Option<ClientName>, String> {
        let Some(reply_to) = self.properties.reply_to.as_deref().filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let client = reply_to.strip_prefix(REPLIES).and_then(|rest| rest.strip_prefix('.')).unwrap_or(reply_to);
        let client: ClientName =
            client.parse().map_err(|problem| format!("reply_to must name a client or its reply queue: {problem}"))?;
        match foreign_client(self.user.as_deref(), &client) {
            Some(problem) => Err(problem),
            None => Ok(Some(client)),
        }
    }
}

/// The deliveries of a job in a class queue from which the broker dead-lettered it. The broker no longer counts them. Attempt numbers must
/// not repeat, so the next attempt gets a number above all of them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Forgotten {
    attempts: u64,
    deliveries: u64,
}

impl Forgotten {
    fn by(deaths: &[Death]) -> Self {
        // The latest entry comes first. Workers republish jobs without these headers.
        let Some(death) = deaths.first().filter(|death| death.queue.starts_with(FORWARDED)) else {
            return Self::default();
        };
        // More than the 20 deliveries after which the broker dead-letters a message.
        let beyond = 2 * DELIVERIES_MAX;
        Self { attempts: beyond, deliveries: if death.reason == DELIVERED_TOO_OFTEN { beyond } else { 0 } }
    }
}

/// Returns the attempt number. An invalid header is ignored.
fn attempt(header: Option<u32>, redeliveries: u64) -> u32 {
    let first = header.filter(|attempt| (1..=ATTEMPT_MAX).contains(attempt)).unwrap_or(1);
    let redeliveries = u32::try_from(redeliveries).unwrap_or(ATTEMPT_MAX).min(ATTEMPT_MAX);
    first.saturating_add(redeliveries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_comes_back_from_a_class_queue_has_a_new_attempt_and_is_poison_if_it_was_delivered_too_often() {
        let death = |queue: &str, reason: &str| Death { queue: queue.to_owned(), reason: reason.to_owned() };
        let class = "gpufleet.v1.forwarded.default.0123456789abcdef.low";
        let by = |deaths: &[Death]| Forgotten::by(deaths);
        assert_eq!(by(&[]), Forgotten::default());
        assert_eq!(by(&[death("gpufleet.v1.retry.1", "expired")]), Forgotten::default());
        assert_eq!(by(&[death(class, "expired")]), Forgotten { attempts: 30, deliveries: 0 });
        let poison = by(&[death(class, "delivery_limit")]);
        assert!(poison.deliveries > DELIVERIES_MAX);
    }

    #[test]
    fn an_attempt_is_counted_from_the_header_on_unless_that_can_not_be_right() {
        for (header, redeliveries, wanted) in [
            (None, 0, 1),
            (None, 3, 4),
            (Some(2), 1, 3),
            (Some(0), 0, 1),
            (Some(ATTEMPT_MAX), 0, ATTEMPT_MAX),
            (Some(3_000_000_000), 1, 2),
        ] {
            assert_eq!(attempt(header, redeliveries), wanted, "{header:?} and {redeliveries}");
        }
        let most = attempt(Some(ATTEMPT_MAX), u64::MAX);
        assert!(i32::try_from(most).is_ok(), "the ledger can't hold {most}");
    }
}
