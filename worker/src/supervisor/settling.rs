//! Settles messages: acknowledges or requeues their deliveries.

use std::sync::Arc;

use gpufleet_transport::{Acker, SettleError, Settled};
use tracing::warn;

use super::{Supervisor, content::RawMessage, handle::Input};
use crate::dispatcher::{MessageNo, digest};

impl Supervisor {
    /// Acknowledges the messages with as few frames as possible.
    pub(super) async fn acknowledge(&self, messages: Vec<(MessageNo, Arc<RawMessage>)>) -> Input {
        let ackers: Vec<&Acker> = messages.iter().map(|(_, raw)| &raw.envelope.acker).collect();
        let results = Acker::ack_all(&ackers).await;
        let each = messages.iter().zip(results);
        Input::Settled(each.map(|((message, raw), result)| (*message, self.unreached(raw, result))).collect())
    }

    pub(super) async fn requeue(&self, message: MessageNo, raw: &RawMessage) -> Input {
        let result = raw.envelope.acker.requeue().await;
        Input::Settled(vec![(message, self.unreached(raw, result))])
    }

    /// Returns the digest of a message whose settlement did not reach the broker.
    fn unreached(&self, raw: &RawMessage, result: Result<Settled, SettleError>) -> Option<blake3::Hash> {
        let RawMessage { envelope, body } = raw;
        let message_id = envelope.message_id();
        match result {
            Ok(Settled::Sent) => return None,
            Ok(Settled::Stale) => {
                self.metrics.stale_settlements.inc();
                warn!(message_id, "connection lost before the message was settled, the broker will redeliver it");
            }
            Err(error) => warn!(message_id, %error, "delivery not settled, the broker may redeliver it"),
        }
        Some(digest(message_id, body))
    }
}
