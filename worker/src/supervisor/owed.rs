//! Publishes the messages that must be confirmed before a delivery is acknowledged, retrying with backoff while the broker refuses them.
//!
//! A full queue and a restarting node both answer with a nack, and both recover. Until then the worker keeps the delivery. If it were
//! requeued, it would be redelivered at once, and its jobs would run again only to be refused again. Only the message waits; the jobs'
//! slots are free.

use std::{sync::Arc, time::Duration};

use gpufleet_schema::topology::UNCLAIMED_EXCHANGE;
use gpufleet_transport::{Backoff, Message, PublishError};
use tokio::time::{Instant, sleep};
use tracing::{error, warn};

use super::{Supervisor, envelope::Envelope};

/// How long a delivery is kept after the broker first refused a message that must not be lost. It gives an operator time to make room, and
/// is less than the broker's own limit for a delivery (`consumer_timeout`), which is 30 minutes by default.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long a delivery is kept for a refused reply, which can go to the queue of unclaimed replies instead. A killed node restarts within
/// half of this time.
const REPLY_PATIENCE: Duration = Duration::from_secs(60);

/// How a message is retried.
struct Patience {
    /// The time limit, from the first refusal of a message for this delivery.
    time: Duration,
    is_worth_it: fn(&PublishError) -> bool,
    /// Whether the message is needed even if the broker will redeliver the task. A reply is, because the jobs do not run again.
    outlives_delivery: bool,
}

const REPLY: Patience = Patience { time: REPLY_PATIENCE, is_worth_it: passes_by_itself, outlives_delivery: true };

impl Supervisor {
    /// Publishes a message that must reach a queue. Gives up after [`PATIENCE`], or when the worker drains.
    pub(super) async fn publish_owed(&self, envelope: &Envelope, message: Message) -> Result<(), PublishError> {
        let patience = Patience { time: PATIENCE, is_worth_it: is_refusal, outlives_delivery: false };
        self.publish_patiently(envelope, &Arc::new(message), &patience).await
    }

    /// Publishes a reply. If the client's queue still refuses it after [`REPLY_PATIENCE`], the reply goes to the queue of unclaimed
    /// replies.
    pub(super) async fn publish_owed_reply(&self, envelope: &Envelope, reply: Message) -> Result<(), PublishError> {
        let reply = Arc::new(reply);
        let refusal = match self.publish_patiently(envelope, &reply, &REPLY).await {
            Err(error) if is_refusal(&error) => error,
            published => return published,
        };
        Box::pin(self.keep_reply(envelope, reply, refusal)).await
    }

    async fn keep_reply(
        &self,
        envelope: &Envelope,
        reply: Arc<Message>,
        refusal: PublishError,
    ) -> Result<(), PublishError> {
        let client = reply.routing_key.clone();
        warn!(client, error = %refusal, "reply rejected, keeping it with the unclaimed replies");
        let kept = Arc::new(Message { exchange: UNCLAIMED_EXCHANGE, ..Arc::unwrap_or_clone(reply) });
        match self.publish_patiently(envelope, &kept, &REPLY).await {
            Err(error) if is_refusal(&error) => {
                self.metrics.replies_lost.inc();
                error!(client, %error, "reply lost, the broker rejects it; the ledger has the outcome");
                Ok(())
            }
            published => {
                self.metrics.replies_kept.inc_by(u64::from(published.is_ok()));
                published
            }
        }
    }

    async fn publish_patiently(
        &self,
        envelope: &Envelope,
        message: &Arc<Message>,
        patience: &Patience,
    ) -> Result<(), PublishError> {
        let mut backoff = Backoff::default();
        loop {
            let error = match self.broker.publish(Arc::clone(message)).await {
                Err(error) if (patience.is_worth_it)(&error) => error,
                published => return published,
            };
            let wait = backoff.next();
            let refused_for = envelope.refused_since.get_or_init(Instant::now).elapsed();
            if matches!(error, PublishError::Unroutable { .. } | PublishError::NoExchange { .. }) {
                self.make_queues_again(&error).await;
                if backoff.attempt() == 1 {
                    continue;
                }
            }
            let is_needed = patience.outlives_delivery || envelope.is_live();
            if refused_for + wait > patience.time || !is_needed {
                return Err(error);
            }
            warn!(message_id = envelope.message_id(), %error, ?wait, "publish failed, trying again");
            if self.leaving.run_until_cancelled(sleep(wait)).await.is_none() {
                return Err(error);
            }
        }
    }

    /// Declares the queues and exchanges again, because an operator has deleted one.
    async fn make_queues_again(&self, error: &PublishError) {
        warn!(%error, "queue or exchange missing, declaring the topology again");
        if let Err(error) = self.broker.declare_base().await {
            warn!(%error, "failed to declare the topology");
        }
    }
}

/// Returns whether the refusal of a reply may pass by itself: a full queue, an unavailable node or a deleted queue. A missing permission
/// does not, and each try would close a channel.
fn passes_by_itself(error: &PublishError) -> bool {
    matches!(error, PublishError::Nacked { .. } | PublishError::Unroutable { .. } | PublishError::NoExchange { .. })
}

/// Returns whether the broker rejected the message for a reason that an operator can remove.
pub(super) fn is_refusal(error: &PublishError) -> bool {
    match error {
        PublishError::Nacked { .. }
        | PublishError::Unroutable { .. }
        | PublishError::NoExchange { .. }
        | PublishError::Forbidden { .. }
        | PublishError::Refused { .. } => true,
        PublishError::TooLarge { .. }
        | PublishError::Order(_)
        | PublishError::HeaderTooLarge { .. }
        | PublishError::PropertyTooLong { .. }
        | PublishError::Timeout { .. }
        | PublishError::Unknown { .. }
        | PublishError::Closed => false,
    }
}
