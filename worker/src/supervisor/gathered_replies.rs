//! Replies to the same client gather in lists, to save messages (see [`gpufleet_transport::GroupCommit`]). Only clients that accept lists
//! get them.

use std::{iter, mem, sync::Arc};

use gpufleet_schema::{
    ClientName, Encoding, MessageId,
    bounds::MESSAGE_BYTES_MAX,
    topology::{HEADER_REPLY_TOKEN, REPLIES, TYPE_REPLY},
};
use gpufleet_transport::{Group, Message, Properties, PublishError, Turn};
use tokio::sync::oneshot;
use tracing::debug;

use super::{
    Supervisor,
    clock::Received,
    envelope::Envelope,
    outbox::{trace_reply, unix_seconds},
};

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

/// Replies for one message to a client.
#[derive(Debug, Default)]
pub(super) struct ReplyList(Vec<GatheredReply>);

/// A reply that waits for the next message to its client.
#[derive(Debug)]
pub(super) struct GatheredReply {
    reply: Vec<u8>,
    /// The time at which its task was received.
    received: Received,
    /// Receives whether the message that contains the reply was confirmed.
    confirmed: oneshot::Sender<bool>,
}

impl Group for ReplyList {
    type Item = GatheredReply;
    const UNCONFIRMED_MAX: usize = 1;

    fn add(&mut self, gathered: GatheredReply) -> Option<Self> {
        let full = (self.0.len() == REPLIES_MAX).then(|| mem::take(self));
        self.0.push(gathered);
        full
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
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
        let (confirmed, outcome) = oneshot::channel();
        let gathered = GatheredReply { reply: reply.clone(), received: envelope.received, confirmed };
        if let Some(mut lists) = self.gathered_replies.add(&recipient, gathered) {
            let first = lists.next().expect("the reply was added just now");
            if first.0.len() == 1 {
                let published = self.publish_encoded_reply(envelope, *encoding, client, reply).await;
                if let Some(next) = lists.next() {
                    tokio::spawn(Arc::clone(self).publish_lists(next, lists));
                }
                return published;
            }
            // Others came in between.
            tokio::spawn(Arc::clone(self).publish_lists(first, lists));
        }
        // An error means that the turn ended early.
        match outcome.await.unwrap_or(false) {
            true => Ok(()),
            false => self.publish_encoded_reply(envelope, *encoding, client, reply).await,
        }
    }

    /// Publishes the gathered replies until no more have gathered.
    async fn publish_lists(self: Arc<Self>, first: ReplyList, rest: Turn<Recipient, ReplyList>) {
        let recipient = rest.destination().clone();
        for ReplyList(replies) in iter::once(first).chain(rest) {
            replies.iter().for_each(|gathered| trace_reply(gathered.received));
            let published = self.broker.publish(list(&recipient, &replies)).await;
            if let Err(error) = &published {
                debug!(client = %recipient.client, %error, "list of replies not confirmed, publishing each alone");
            }
            for GatheredReply { confirmed, .. } in replies {
                // An error means that the reply's job no longer waits.
                let _gone = confirmed.send(published.is_ok());
            }
        }
    }
}

fn list(Recipient { client, token, encoding }: &Recipient, gathered: &[GatheredReply]) -> Message {
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
    }
}
