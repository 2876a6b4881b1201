//! Replies that share messages.
//!
//! A message costs the broker and the client nearly the same whether it carries one small reply or a hundred. So while a message to a client
//! is unconfirmed, later replies to it gather, and its confirm sends them together. No reply waits for others, and there is no timer. Only
//! clients that ask for lists get them.

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

/// A larger reply has a message of its own.
const GATHERED_BYTES_MAX: usize = 32 << 10;
/// The most replies of a message.
const REPLIES_MAX: usize = 256;

const _: () = assert!(GATHERED_BYTES_MAX * REPLIES_MAX < MESSAGE_BYTES_MAX);

/// A client with its secret, and the encoding of its replies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Recipient {
    pub(super) client: ClientName,
    pub(super) token: Option<String>,
    pub(super) encoding: Encoding,
}

/// The replies that gather. A recipient is here while a message to it is unconfirmed.
#[derive(Debug, Default)]
pub(super) struct GatheredReplies(SharedState<HashMap<Recipient, Vec<Gathered>>>);

#[derive(Debug)]
struct Gathered {
    reply: Vec<u8>,
    /// When its task was received.
    received: Received,
    /// Told whether the message that has the reply is confirmed.
    confirmed: oneshot::Sender<bool>,
}

/// The task that publishes to a recipient. When it ends, even by a panic, the replies that have gathered are published alone.
struct Turn<'a> {
    replies: &'a GatheredReplies,
    recipient: &'a Recipient,
    has_ended: bool,
}

impl GatheredReplies {
    /// Begins a turn, or lets the reply wait for the end of the current one.
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

    /// What has gathered for the next message. Without anything, the turn ends.
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
    /// Publishes a reply to a client that reads lists of replies: at once, or with others once the last message to the client is confirmed.
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
        // It has ended, or goes on in the other task.
        turn.has_ended = true;
        drop(turn);
        if !first.is_empty() {
            tokio::spawn(Arc::clone(self).publish_lists(recipient, first));
        }
        published
    }

    /// Publishes what has gathered, until nothing has.
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
                // An error means that nothing waits for the reply any more.
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
