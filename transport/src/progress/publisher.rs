//! Publishes progress. Nothing waits for it, and nothing is sent twice.

use std::{sync::Arc, time::Duration};

use gpufleet_schema::{
    Encoding,
    topology::{PROGRESS, TYPE_PROGRESS},
};
use lapin::{BasicProperties, options::BasicPublishOptions};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};
use tracing::debug;

use crate::link::{Link, OpenChannel, reason_of};

/// Messages that may wait to be written. Each has up to 8 KiB, so 64 KiB wait at most.
const WAITING_MAX: usize = 8;
/// The limit for opening a channel, or for writing a message to a broker that does not read.
const DEADLINE: Duration = Duration::from_secs(10);
/// The pause after a channel that the broker closed, for example because the worker may not publish progress.
const PAUSE: Duration = Duration::from_secs(60);

/// AMQP's delivery mode of a message that a broker's restart may lose.
const TRANSIENT: u8 = 1;

/// Publishes progress on a channel without confirms, until it is dropped.
#[derive(Debug)]
pub struct ProgressPublisher(mpsc::Sender<(String, Vec<u8>)>);

impl ProgressPublisher {
    pub(crate) fn start(link: Arc<Link>) -> Self {
        let (sender, messages) = mpsc::channel(WAITING_MAX);
        tokio::spawn(run(link, messages));
        Self(sender)
    }

    /// Publishes a message with this routing key, unless others still wait to be written. Returns whether there was room for it.
    pub fn offer(&self, routing_key: String, body: Vec<u8>) -> bool {
        self.0.try_send((routing_key, body)).is_ok()
    }
}

async fn run(link: Arc<Link>, mut messages: mpsc::Receiver<(String, Vec<u8>)>) {
    let mut sessions = link.sessions();
    loop {
        let found = sessions.wait_for(|s| s.as_ref().is_some_and(|s| !s.failed().is_cancelled()));
        let session = tokio::select! {
            () = link.stop.cancelled() => return,
            found = found => match found.ok().and_then(|session| session.clone()) {
                Some(session) => session,
                None => return,
            },
        };
        let _user = session.user();
        let ended = match timeout(DEADLINE, session.publish_channel()).await {
            Ok(Ok(channel)) => tokio::select! {
                () = link.stop.cancelled() => return,
                () = session.failed().cancelled() => continue,
                ended = publish(&channel, &mut messages) => ended,
            },
            Ok(Err(error)) => Some(error),
            Err(_) => continue,
        };
        let Some(error) = ended else { return };
        debug!(reason = reason_of(&error), "the channel for progress ended");
        let resumed_at = Instant::now() + PAUSE;
        // In the meantime the messages are old.
        loop {
            tokio::select! {
                () = sleep_until(resumed_at) => break,
                () = link.stop.cancelled() => return,
                message = messages.recv() => if message.is_none() { return },
            }
        }
    }
}

/// Publishes messages until there are no more (`None`), or until the channel ends.
async fn publish(channel: &OpenChannel, messages: &mut mpsc::Receiver<(String, Vec<u8>)>) -> Option<lapin::Error> {
    let properties = BasicProperties::default()
        .with_delivery_mode(TRANSIENT)
        .with_content_type(Encoding::MessagePack.content_type().into())
        .with_type(TYPE_PROGRESS.into());
    while let Some((key, body)) = messages.recv().await {
        let options = BasicPublishOptions::default();
        // Returns once the message is written. If the broker does not read, the next messages find no room.
        let written = channel.basic_publish(PROGRESS.into(), key.as_str().into(), options, &body, properties.clone());
        if let Err(error) = written.await {
            return Some(error);
        }
    }
    None
}
