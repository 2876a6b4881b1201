//! What stands on the outside of a message, checked before its body is looked at.

use std::sync::OnceLock;

use gpufleet_schema::{
    ClientName, Encoding, PoolName, Priority,
    bounds::DELIVERIES_MAX,
    topology::{
        FORWARDED, HEADER_ATTEMPT, HEADER_DELIVERIES, HEADER_LOSSES, HEADER_UNAVAILABLE, HEADER_USER, REPLIES,
        parse_task_key,
    },
};
use gpufleet_transport::{Acker, Death, Delivery, Properties};
use tokio::time::Instant;

use super::{clock::Received, intake::TaskQueue, load::Carried};
use crate::{disposition::Past, forwarding::ForwardingHistory, scheduler::PoolId};

/// No job has as many attempts. Producers can write any number into a header, and one beyond the ledger's integers would cost the job
/// its record.
const ATTEMPT_MAX: u32 = 1_000_000;

/// The broker's word for a message that was delivered more often than its queue allows.
const DELIVERED_TOO_OFTEN: &str = "delivery_limit";

/// A task message without its body.
#[derive(Debug)]
pub(super) struct Envelope {
    pub(super) properties: Properties,
    pub(super) pool: PoolName,
    /// The pool of the queue that it came from: in its executors the jobs run.
    pub(super) pool_id: PoolId,
    pub(super) priority: Priority,
    /// The number of this attempt: what the producer or the last retry wrote, and one more for each time that the broker had to
    /// deliver again. Numbers may be skipped; none is used twice for the same message.
    pub(super) attempt: u32,
    pub(super) past: Past,
    pub(super) forwarding: ForwardingHistory,
    /// How often the message was delivered before.
    pub(super) delivery_count: u64,
    /// It was delivered before, and the broker does not say how often. Such a message is not worked on but goes back as a copy that
    /// counts: without a count nothing would end its coming, and attempts would share their numbers.
    pub(super) uncounted: bool,
    /// Somebody had it before, perhaps this worker.
    pub(super) redelivered: bool,
    pub(super) received: Received,
    pub(super) acker: Acker,
    pub(super) carried: Carried,
    /// Since when the broker has refused a message that is owed to it.
    pub(super) refused_since: OnceLock<Instant>,
}

impl Envelope {
    pub(super) fn open(delivery: Delivery, queue: TaskQueue, carried: Carried) -> (Self, Vec<u8>) {
        let received = Received::now();
        let (redeliveries, routing_key) = (delivery.delivery_count, delivery.routing_key.clone());
        let redelivered = delivery.redelivered;
        let uncounted = redelivered && !delivery.counted;
        let forgotten = Forgotten::by(&delivery.deaths());
        let (body, properties, acker) = delivery.into_parts();
        // A message that a dead-letter replay put straight into the queue has no key of ours; the queue says the same.
        let (pool, priority) = parse_task_key(&routing_key).unwrap_or((queue.pool, queue.priority));
        let count = |name| properties.header_int(name).and_then(|value| u32::try_from(value).ok());
        let envelope = Self {
            attempt: attempt(count(HEADER_ATTEMPT), redeliveries.saturating_add(forgotten.attempts)),
            past: Past {
                losses: count(HEADER_LOSSES).unwrap_or(0),
                unavailable: count(HEADER_UNAVAILABLE).unwrap_or(0),
            },
            forwarding: ForwardingHistory::read(&properties),
            delivery_count: redeliveries
                .saturating_add(count(HEADER_DELIVERIES).unwrap_or(0).into())
                .saturating_add(forgotten.deliveries),
            uncounted,
            redelivered,
            acker,
            carried,
            refused_since: OnceLock::new(),
            pool,
            pool_id: queue.id,
            priority,
            received,
            properties,
        };
        (envelope, body)
    }

    /// Whether settling would still reach the broker. Where not, the message comes again and work on it is for nothing.
    pub(super) fn is_live(&self) -> bool {
        self.acker.is_live()
    }

    /// Whether a job of it may have started before. What was given back untouched, or left a list untouched, looks the same. Not so what came
    /// again because its blobs were not there: unless it had started, each of those is one attempt and no more.
    pub(super) fn may_have_started(&self) -> bool {
        self.redelivered || self.attempt > 1_u32.saturating_add(self.past.unavailable)
    }

    /// The user for whom the broker vouches. What a worker published again carries the first one in a header, which counts only where the
    /// broker vouches that a user like ours wrote it.
    pub(super) fn user(&self, own: Option<&str>) -> Option<&str> {
        let vouched = self.properties.user_id.as_deref().filter(|user| !user.is_empty())?;
        let first = self.properties.header_text(HEADER_USER).filter(|_| own == Some(vouched));
        Some(first.unwrap_or(vouched))
    }

    /// The body's encoding by its content type.
    pub(super) fn encoding(&self) -> Result<Encoding, String> {
        match self.properties.content_type.as_deref() {
            Some(text) => Encoding::of_content_type(text).ok_or_else(|| {
                let text: String = text.chars().take(64).collect();
                format!("content_type {text:?} is not supported; use application/msgpack or application/json")
            }),
            None => Err("the message has no content_type; use application/msgpack or application/json".to_owned()),
        }
    }

    /// Where replies go when a task does not say: the message's `reply_to`, as a client's name or its reply queue. Any other queue
    /// is refused, for a worker must not be made to write into queues that its producer could not write to.
    pub(super) fn reply_to(&self) -> Result<Option<ClientName>, String> {
        let Some(reply_to) = self.properties.reply_to.as_deref().filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let client = reply_to.strip_prefix(REPLIES).and_then(|rest| rest.strip_prefix('.')).unwrap_or(reply_to);
        client.parse().map(Some).map_err(|problem| format!("reply_to must name a client or its reply queue: {problem}"))
    }
}

/// What the broker no longer counts of a job that it took out of a class queue: how often it was delivered there. No attempt has a number
/// twice, so the next one's lies beyond all of them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Forgotten {
    attempts: u64,
    deliveries: u64,
}

impl Forgotten {
    fn by(deaths: &[Death]) -> Self {
        // The latest comes first, and workers publish a job again without them.
        let Some(death) = deaths.first().filter(|death| death.queue.starts_with(FORWARDED)) else {
            return Self::default();
        };
        // More than the 20 after which the broker takes it out.
        let beyond = 2 * DELIVERIES_MAX;
        Self { attempts: beyond, deliveries: if death.reason == DELIVERED_TOO_OFTEN { beyond } else { 0 } }
    }
}

/// A header that can't be right counts for nothing.
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
