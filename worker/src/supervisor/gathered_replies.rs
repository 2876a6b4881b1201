//! Gathers replies to the same client into lists, to save messages.
//!
//! A message costs the broker and the client nearly as much with one small reply as with a hundred. So while a message to a client is
//! unconfirmed, later replies to that client gather, and the next message carries all of them. The first reply is sent at once, and there
//! is no timer. Only clients that accept lists get them.

use std::{collections::HashMap, mem, sync::Arc};

use gpufleet_schema::{
    ClientName, Encoding, MessageId,
    bounds::MESSAGE_BYTES_MAX,
    topology::{HEADER_REPLY_TOKEN, REPLIES, TYPE_REPLY},
};
use gpufleet_transport::{Message, Properties, PublishError};
use tokio::sync::oneshot;
use tracing::debug;

use super::{
    Supervisor,
    clock::Received,
    envelope::Envelope,
    outbox::{trace_reply, unix_seconds},
};
use crate::shared_state::SharedState;

/// Maximum size of a gathered reply, in bytes; a larger one has a message of its own.
const GATHERED_BYTES_MAX: usize = 32 << 10;
/// Maximum number of replies in a message.
const REPLIES_MAX: usize = 256;

const _: () = assert!(GATHERED_BYTES_MAX * REPLIES_MAX < MESSAGE_BYTES_MAX);

/// A client with its secret, and the encoding of its replies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Recipient {
    pub(super) client: ClientName,
    pub(super) token: Option<String>,
    pub(super) encoding: Encoding,
}

/// The gathering replies by recipient. A recipient is in the map while a message to it is unconfirmed.
#[derive(Debug, Default)]
pub(super) struct GatheredReplies(SharedState<HashMap<Recipient, Vec<Gathered>>>);

/// A reply that waits for the next message to its client.
#[derive(Debug)]
struct Gathered {
    reply: Vec<u8>,
    /// The time at which its task was received.
    received: Received,
    /// Receives whether the message that contains the reply was confirmed.
    confirmed: oneshot::Sender<bool>,
}

/// The exclusive right to publish to a recipient. If it ends early, as by a panic, each gathered reply is published alone.
struct Turn<'a> {
    replies: &'a GatheredReplies,
    recipient: &'a Recipient,
    has_ended: bool,
}

impl GatheredReplies {
    /// Begins a turn (`None`), or adds the reply to those that the current turn will publish.
    fn join(&self, recipient: &Recipient, reply: &[u8], received: Received) -> Option<oneshot::Receiver<bool>> {
        let mut gathered = self.0.lock();
        match gathered.get_mut(recipient) {
            Some(replies) => {
                let (confirmed, outcome) = oneshot::channel();
                replies.push(Gathered { reply: reply.to_vec(), received, confirmed });
                Some(outcome)
            }
            None => {
                gathered.insert(recipient.clone(), Vec::new());
                None
            }
        }
    }

    /// Takes the replies for the next message. If there are none, the turn ends.
    fn next(&self, recipient: &Recipient) -> Vec<Gathered> {
        let mut gathered = self.0.lock();
        let Some(replies) = gathered.get_mut(recipient) else { return Vec::new() };
        if replies.is_empty() {
            gathered.remove(recipient);
            return Vec::new();
        }
        let rest = replies.split_off(replies.len().min(REPLIES_MAX));
        mem::replace(replies, rest)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.replies.0.lock().remove(self.recipient);
        }
    }
}

impl Supervisor {
    /// Publishes a reply to a client that accepts lists of replies: at once, or with others after the last message to the client is
    /// confirmed.
    pub(super) async fn publish_gathered(
        self: &Arc<Self>,
        envelope: &Envelope,
        recipient: Recipient,
        reply: Vec<u8>,
    ) -> Result<(), PublishError> {
        let Recipient { client, encoding, .. } = &recipient;
        if reply.len() > GATHERED_BYTES_MAX {
            return self.publish_encoded_reply(envelope, *encoding, client, reply).await;
        }
        if let Some(confirmed) = self.gathered_replies.join(&recipient, &reply, envelope.received) {
            // An error means that the turn ended early.
            return match confirmed.await.unwrap_or(false) {
                true => Ok(()),
                false => self.publish_encoded_reply(envelope, *encoding, client, reply).await,
            };
        }
        let mut turn = Turn { replies: &self.gathered_replies, recipient: &recipient, has_ended: false };
        let published = self.publish_encoded_reply(envelope, *encoding, client, reply).await;
        let first = self.gathered_replies.next(&recipient);
        // The turn has ended, or the task below continues it.
        turn.has_ended = true;
        drop(turn);
        if !first.is_empty() {
            tokio::spawn(Arc::clone(self).publish_lists(recipient, first));
        }
        published
    }

    /// Publishes the gathered replies until no more have gathered.
    async fn publish_lists(self: Arc<Self>, recipient: Recipient, first: Vec<Gathered>) {
        let mut turn = Turn { replies: &self.gathered_replies, recipient: &recipient, has_ended: false };
        let mut next = first;
        while !next.is_empty() {
            next.iter().for_each(|gathered| trace_reply(gathered.received));
            let published = self.broker.publish(list(&recipient, &next)).await;
            if let Err(error) = &published {
                debug!(client = %recipient.client, %error, "list of replies not confirmed, publishing each alone");
            }
            for Gathered { confirmed, .. } in next {
                // An error means that the reply's job no longer waits.
                let _gone = confirmed.send(published.is_ok());
            }
            next = self.gathered_replies.next(&recipient);
        }
        turn.has_ended = true;
    }
}

fn list(Recipient { client, token, encoding }: &Recipient, gathered: &[Gathered]) -> Message {
    let replies: Vec<&[u8]> = gathered.iter().map(|gathered| gathered.reply.as_slice()).collect();
    Message {
        exchange: REPLIES,
        routing_key: client.to_string(),
        body: encoding.join(&replies),
        properties: Properties {
            message_id: Some(MessageId::new().to_string()),
            content_type: Some(encoding.content_type().to_owned()),
            kind: Some(TYPE_REPLY.to_owned()),
            timestamp: Some(unix_seconds()),
            headers: token.iter().map(|token| (HEADER_REPLY_TOKEN.to_owned(), token.as_str().into())).collect(),
            ..Properties::default()
        },
        mandatory: true,
    }
}
