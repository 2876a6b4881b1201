//! Events that can't be recorded, moved to the dead queue with the reason.

use gpufleet_schema::{
    Encoding,
    bounds::HEADER_TEXT_BYTES_MAX,
    encoding::encode_events,
    topology::{DEAD, DEAD_KEY, HEADER_ORIGIN, HEADER_REASON, LEDGER_QUEUE, TYPE_EVENTS},
};
use gpufleet_transport::{Backoff, Broker, Message, Properties, PublishError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::Rejected;

/// A message for the dead queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeadLetter {
    body: Vec<u8>,
    message_id: Option<String>,
    content_type: Option<String>,
    reason: String,
}

/// What came of a letter.
#[derive(Debug)]
pub(super) enum Burial {
    Done,
    Stopped,
    /// The broker did not take it in time.
    Late(DeadLetter),
}

/// What to do about a letter that the broker did not take.
#[derive(Debug, PartialEq, Eq)]
enum Remedy {
    TryAgain,
    /// The queue is gone.
    DeclareQueue,
    /// No broker will ever take this body, or these properties.
    LeaveBodyOut,
    /// This process is closing.
    GiveUp,
}

impl DeadLetter {
    /// A message whose body could not be read.
    pub(super) fn of_message(body: Vec<u8>, properties: Properties, reason: String) -> Self {
        Self { body, message_id: properties.message_id, content_type: properties.content_type, reason }
    }

    /// One event of a message, whose others were recorded.
    pub(super) fn of_event(rejected: &Rejected) -> Self {
        let body = encode_events(std::slice::from_ref(&rejected.event)).expect("it came from this encoding");
        let content_type = Some(Encoding::MessagePack.content_type().to_owned());
        Self { body, message_id: None, content_type, reason: rejected.reason.clone() }
    }

    /// Publishes until the broker has confirmed it, until told to stop, or until the deadline has passed: then it comes back.
    pub(super) async fn bury(mut self, broker: &Broker, stop: &CancellationToken, deadline: Option<Instant>) -> Burial {
        warn!(reason = self.reason, bytes = self.body.len(), "dead-lettering an event that can't be recorded");
        let mut backoff = Backoff::default();
        loop {
            let Err(problem) = broker.publish(self.message()).await else { return Burial::Done };
            error!(error = %problem, "the broker did not confirm a dead-lettered event; trying again");
            match remedy(&problem) {
                Remedy::TryAgain => {}
                Remedy::DeclareQueue => {
                    if let Err(problem) = broker.declare_ledger().await {
                        error!(error = %problem, "failed to declare the dead-letter queue");
                    }
                }
                Remedy::LeaveBodyOut => self.shrink(&problem),
                Remedy::GiveUp => return Burial::Stopped,
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Burial::Late(self);
            }
            tokio::select! {
                () = stop.cancelled() => return Burial::Stopped,
                () = backoff.wait() => {}
            }
        }
    }

    /// Keeps the reason alone, which is worth more than an endless loop.
    fn shrink(&mut self, problem: &PublishError) {
        if !self.body.is_empty() {
            self.reason.push_str(&format!(" (its body of {} bytes was left out: {problem})", self.body.len()));
        }
        self.body.clear();
        self.message_id = None;
        self.content_type = None;
    }

    fn message(&self) -> Message {
        let reason = &self.reason[..self.reason.floor_char_boundary(HEADER_TEXT_BYTES_MAX)];
        Message {
            exchange: DEAD,
            routing_key: DEAD_KEY.to_owned(),
            body: self.body.clone(),
            properties: Properties {
                message_id: self.message_id.clone(),
                content_type: self.content_type.clone(),
                kind: Some(TYPE_EVENTS.to_owned()),
                headers: [(HEADER_REASON.to_owned(), reason.into()), (HEADER_ORIGIN.to_owned(), LEDGER_QUEUE.into())]
                    .into(),
                ..Properties::default()
            },
            mandatory: true,
        }
    }
}

fn remedy(problem: &PublishError) -> Remedy {
    match problem {
        PublishError::Unroutable { .. } | PublishError::NoExchange { .. } => Remedy::DeclareQueue,
        PublishError::TooLarge { .. } | PublishError::HeaderTooLarge { .. } | PublishError::PropertyTooLong { .. } => {
            Remedy::LeaveBodyOut
        }
        // A refusal is most of all a permission that is missing, for a larger message than the broker takes would not have come from it.
        PublishError::Refused { .. }
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
    fn a_body_is_left_out_only_where_no_broker_would_ever_take_it() {
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
