//! Offers a session to its client and waits for the answer.
//!
//! The broker redelivers the message of a session whose worker it has cut off, although the session may go on there. Only the client knows,
//! so it is asked with the offer. A worker without an answer gives the message back, [`UNANSWERED_MAX`] times.

use std::time::Duration;

use gpufleet_schema::{
    ClientName, Encoding, MessageId, SessionOffer,
    session::token_text,
    topology::{REPLIES, TYPE_OFFER, reply_queue, retry_rung},
};
use gpufleet_transport::{Message, Properties};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use super::{
    Supervisor,
    envelope::Envelope,
    outbox::unix_seconds,
    prepared::Ready,
    sessions::{End, OpenSession},
};
use crate::{
    disposition::Ending,
    forwarding::{Destination, ForwardingHistory},
    session::GateEvent,
};

/// How long an offer waits for its client. After that, the broker drops it too.
const CONNECT_WITHIN: Duration = Duration::from_secs(30);
/// How long a session waits for the broker to take its offer.
const OFFER_WITHIN: Duration = Duration::from_secs(10);
/// The rung of the retry ladder on which the message of a session waits that is open elsewhere: half a minute.
const ELSEWHERE_RUNG: u32 = 3;
/// How often a session that may be open elsewhere is offered again if its client does not answer. The waits are half a minute and two minutes,
/// in which its worker can come back to the broker and report how the session ended.
const UNANSWERED_MAX: u32 = 2;

impl Supervisor {
    /// Returns whether the client has closed its reply queue, so that nothing waits for the session.
    pub(super) async fn client_has_left(&self, ready: &Ready) -> bool {
        let Some(client) = client(ready) else { return true };
        // Without an answer of the broker, the offer is the question.
        matches!(self.broker.queue_depth(&reply_queue(&client)).await, Ok(None))
    }

    /// Offers the session and waits for its client.
    pub(super) async fn await_client(&self, session: &mut OpenSession<'_>) -> Result<(), End> {
        let offered = timeout(OFFER_WITHIN, self.publish_offer(session));
        if !offered.await.unwrap_or(false) {
            return Err(End::Fleet("the broker did not take the session's offer".to_owned()));
        }
        let deadline = Instant::now() + CONNECT_WITHIN;
        loop {
            match timeout_at(deadline, session.gate.next()).await {
                Ok(GateEvent::Connected) => return Ok(()),
                Ok(event) => match session.take(event, self) {
                    Some(end) => return Err(end),
                    None => continue,
                },
                Err(_) => {
                    let seconds = CONNECT_WITHIN.as_secs();
                    return Err(End::Client(format!("no client connected to the session within {seconds} s")));
                }
            }
        }
    }

    /// Publishes the session's offer to its client. Returns whether the broker has it.
    async fn publish_offer(&self, session: &OpenSession<'_>) -> bool {
        let (task, envelope, gate) = (session.ready.task(), session.ready.envelope(), &session.gate);
        let Some(client) = client(session.ready) else { return false };
        let offer = SessionOffer {
            version: gpufleet_schema::VERSION,
            job_id: task.job_id,
            attempt: envelope.attempt,
            addresses: self.session_addresses(gate.port()).await,
            certificate: gate.certificate().to_owned(),
            token: token_text(gate.token()),
            ran_on: session.device.ran_on(self.config.name.clone()),
            memory_bytes: task.limits.memory_bytes_max.unwrap_or(0),
            time_limit_ms: session.limits.time.as_millis() as u64,
            connect_within_ms: CONNECT_WITHIN.as_millis() as u64,
        };
        let message = Message {
            exchange: REPLIES,
            routing_key: client.to_string(),
            body: offer.encode(),
            properties: Properties {
                message_id: Some(MessageId::new().to_string()),
                correlation_id: Some(task.job_id.to_string()),
                content_type: Some(Encoding::MessagePack.content_type().to_owned()),
                kind: Some(TYPE_OFFER.to_owned()),
                timestamp: Some(unix_seconds()),
                expires_after: Some(CONNECT_WITHIN),
                headers: envelope.copied_headers(),
                ..Properties::default()
            },
        };
        let published = self.broker.publish(message).await;
        published.inspect_err(|error| warn!(job_id = %task.job_id, %error, "session not offered")).is_ok()
    }
}

/// Returns the client to which a session is offered.
fn client(ready: &Ready) -> Option<ClientName> {
    let (task, envelope) = (ready.task(), ready.envelope());
    let reply_to = envelope.reply_to().ok().flatten();
    envelope.recipient(task.reply.as_ref(), reply_to.as_ref()).cloned()
}

impl End {
    /// Returns how the attempt ends if this worker has not opened the session. If another worker may have it, only the client's word ends it.
    pub(super) fn of_unopened(self, ready: &Ready) -> Ending {
        let envelope = ready.envelope();
        let Some((history, rung)) = self.asked_again(envelope) else { return self.ending(None) };
        let seconds = retry_rung(rung).seconds;
        info!(job_id = %ready.task().job_id, seconds, "session may be open on another worker, offered again later");
        Ending::Forwarded { history, to: Destination::Later(retry_rung(rung)) }
    }

    /// Returns the rung on which the message waits for the next offer, if there must be one.
    fn asked_again(&self, envelope: &Envelope) -> Option<(ForwardingHistory, u32)> {
        let history = envelope.forwarding;
        match self {
            Self::Elsewhere => Some((history, ELSEWHERE_RUNG)),
            Self::Client(_) | Self::Fleet(_) if envelope.may_have_started() && history.waits < UNANSWERED_MAX => {
                Some((history.waited(), ELSEWHERE_RUNG + history.waits))
            }
            Self::Command { .. }
            | Self::Cancelled
            | Self::Limit(..)
            | Self::Client(_)
            | Self::Fleet(_)
            | Self::Lost => None,
        }
    }
}
