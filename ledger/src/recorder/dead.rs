//! Dead-letters the events that can't be recorded, with the reason.

use std::collections::BTreeMap;

use gpufleet_schema::{
    Encoding, UnreadableEvent,
    bounds::HEADER_TEXT_BYTES_MAX,
    encoding::encode_event,
    topology::{DEAD, DEAD_KEY, HEADER_BODY_BYTES, HEADER_ORIGIN, HEADER_REASON, LEDGER_QUEUE, TYPE_EVENTS},
};
use gpufleet_transport::{Acker, Backoff, Broker, Delivery, Message, Properties, PublishError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::Rejected;

/// A message for the dead-letter queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeadLetter {
    body: Vec<u8>,
    message_id: Option<String>,
    content_type: Option<String>,
    reason: String,
    /// The length of the original body, if only its beginning is kept.
    whole_bytes: Option<usize>,
}

/// How much of an oversized body is kept, so that such messages do not fill the dead-letter queue.
const OVERSIZE_KEPT_BYTES: usize = 4 << 10;

/// The outcome of publishing a letter.
#[derive(Debug)]
pub(super) enum Published {
    Done,
    Stopped,
    /// The broker did not confirm it before the deadline.
    Late(DeadLetter),
}

/// What to do before the next attempt to publish a letter.
#[derive(Debug, PartialEq, Eq)]
enum Remedy {
    TryAgain,
    /// The queue does not exist.
    DeclareQueue,
    /// The broker would never accept this body or these properties.
    LeaveBodyOut,
    /// This process is stopping.
    GiveUp,
}

impl DeadLetter {
    /// Makes a letter of a message whose events are refused. Returns it with the acker that settles the message.
    pub(super) fn of_delivery(delivery: Delivery, reason: String) -> (Self, Acker) {
        let whole_bytes = delivery.is_cut().then_some(delivery.body_bytes);
        let (mut body, Properties { message_id, content_type, .. }, acker) = delivery.into_parts();
        if whole_bytes.is_some() {
            body.truncate(OVERSIZE_KEPT_BYTES);
            body.shrink_to_fit();
        }
        (Self { body, message_id, content_type, reason, whole_bytes }, acker)
    }

    /// Makes a letter of one event, whose message had other events that were recorded.
    pub(super) fn of_event(rejected: &Rejected) -> Self {
        let body = encode_event(&rejected.event).expect("it was decoded from this encoding");
        Self::of_body(body, rejected.reason.clone())
    }

    /// Makes a letter of one unreadable event, whose message has readable ones.
    pub(super) fn of_unreadable(event: UnreadableEvent) -> Self {
        Self::of_body(event.body, event.problem)
    }

    fn of_body(body: Vec<u8>, reason: String) -> Self {
        let content_type = Some(Encoding::MessagePack.content_type().to_owned());
        Self { body, message_id: None, content_type, reason, whole_bytes: None }
    }

    /// Publishes until the broker confirms, the recorder stops, or the deadline passes.
    pub(super) async fn publish(
        mut self,
        broker: &Broker,
        stop: &CancellationToken,
        deadline: Option<Instant>,
    ) -> Published {
        warn!(reason = self.reason, bytes = self.body.len(), "dead-lettering an event that can't be recorded");
        let mut backoff = Backoff::default();
        loop {
            let Err(problem) = broker.publish(self.message()).await else { return Published::Done };
            error!(error = %problem, "the broker did not confirm a dead-lettered event; trying again");
            match remedy(&problem) {
                Remedy::TryAgain => {}
                Remedy::DeclareQueue => {
                    if let Err(problem) = broker.declare_ledger().await {
                        error!(error = %problem, "failed to declare the dead-letter queue");
                    }
                }
                Remedy::LeaveBodyOut => self.shrink(&problem),
                Remedy::GiveUp => return Published::Stopped,
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Published::Late(self);
            }
            tokio::select! {
                () = stop.cancelled() => return Published::Stopped,
                () = backoff.wait() => {}
            }
        }
    }

    /// Keeps only the reason, because the letter could never be published with its body.
    fn shrink(&mut self, problem: &PublishError) {
        if !self.body.is_empty() {
            self.reason.push_str(&format!(" (its body of {} bytes was left out: {problem})", self.body.len()));
        }
        self.body.clear();
        self.whole_bytes = None;
        self.message_id = None;
        self.content_type = None;
    }

    fn message(&self) -> Message {
        let reason = &self.reason[..self.reason.floor_char_boundary(HEADER_TEXT_BYTES_MAX)];
        let mut headers = BTreeMap::from([
            (HEADER_REASON.to_owned(), reason.into()),
            (HEADER_ORIGIN.to_owned(), LEDGER_QUEUE.into()),
        ]);
        if let Some(bytes) = self.whole_bytes {
            headers.insert(HEADER_BODY_BYTES.to_owned(), i64::try_from(bytes).unwrap_or(i64::MAX).into());
        }
        Message {
            exchange: DEAD,
            routing_key: DEAD_KEY.to_owned(),
            body: self.body.clone(),
            properties: Properties {
                message_id: self.message_id.clone(),
                content_type: self.content_type.clone(),
                kind: Some(TYPE_EVENTS.to_owned()),
                headers,
                ..Properties::default()
            },
        }
    }
}

fn remedy(problem: &PublishError) -> Remedy {
    match problem {
        PublishError::Unroutable { .. } | PublishError::NoExchange { .. } => Remedy::DeclareQueue,
        PublishError::TooLarge { .. } | PublishError::HeaderTooLarge { .. } | PublishError::PropertyTooLong { .. } => {
            Remedy::LeaveBodyOut
        }
        // The usual cause is a missing permission. The body is not too large, because the broker has delivered it.
        PublishError::Refused { .. }
        | PublishError::Order(_)
        | PublishError::Forbidden { .. }
        | PublishError::Nacked { .. }
        | PublishError::Timeout { .. }
        | PublishError::Unknown { .. } => Remedy::TryAgain,
        PublishError::Closed => Remedy::GiveUp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_left_out_only_if_the_broker_would_never_accept_it() {
        let reason = "ACCESS_REFUSED - write access to exchange".to_owned();
        for problem in [PublishError::Refused { reason }, PublishError::Nacked { routing_key: DEAD_KEY.to_owned() }] {
            assert_eq!(remedy(&problem), Remedy::TryAgain, "{problem}");
        }
        for problem in [
            PublishError::TooLarge { bytes: 2, max: 1 },
            PublishError::HeaderTooLarge { bytes: 2, max: 1 },
            PublishError::PropertyTooLong { property: "message id", bytes: 256 },
        ] {
            assert_eq!(remedy(&problem), Remedy::LeaveBodyOut, "{problem}");
        }
    }
}
