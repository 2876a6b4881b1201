//! Settles messages: acknowledges or requeues their deliveries.

use std::sync::Arc;

use gpufleet_transport::{Acker, SettleError, Settled};
use tracing::warn;

use super::{Supervisor, content::Parcel, handle::Mail};
use crate::dispatcher::{MessageNo, digest};

impl Supervisor {
    /// Acknowledges the messages with as few frames as possible.
    pub(super) async fn acknowledge(&self, messages: Vec<(MessageNo, Arc<Parcel>)>) -> Mail {
        let ackers: Vec<&Acker> = messages.iter().map(|(_, parcel)| &parcel.envelope.acker).collect();
        let results = Acker::ack_all(&ackers).await;
        let each = messages.iter().zip(results);
        Mail::Settled(each.map(|((message, parcel), result)| (*message, self.unreached(parcel, result))).collect())
    }

    pub(super) async fn requeue(&self, message: MessageNo, parcel: &Parcel) -> Mail {
        let result = parcel.envelope.acker.requeue().await;
        Mail::Settled(vec![(message, self.unreached(parcel, result))])
    }

    /// The digest of a message whose settlement did not reach the broker.
    fn unreached(&self, parcel: &Parcel, result: Result<Settled, SettleError>) -> Option<blake3::Hash> {
        let Parcel { envelope, body } = parcel;
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
