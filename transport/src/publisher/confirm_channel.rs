//! A task that owns one AMQP channel in confirm mode and the messages published on it.
//!
//! The broker sends a return before the confirm of the same message, and lapin attaches the return to that confirm or to an earlier one. So
//! once the task has read all ready confirms, it knows every return that belongs to one of them. Therefore it reads confirms in batches
//! and drops none while the channel is open.
//!
//! The broker closes a channel when it rejects a message, without naming the message. The task then sends the remaining messages one at
//! a time. The message that the broker was processing when it closes the channel again is the rejected one.
//!
//! A channel of RabbitMQ that first publishes to a quorum queue while the queue has no leader keeps asking the former leader, and rejects
//! every message until that node returns. So a channel on which messages were nacked is replaced from time to time.

use std::{future::ready, sync::Arc, time::Duration};

use futures::{FutureExt, Stream, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use lapin::{
    Channel, Confirmation, PublisherConfirm,
    message::BasicReturnMessage,
    options::{BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};
use tracing::{debug, warn};

use super::{
    Request,
    pending::{Confirm, Number, Pending, Return},
};
use crate::{
    Message, PublishError,
    link::{
        Link, OpenChannel, Session, blames_a_message, is_access_refused, is_channel_level, is_not_found,
        is_of_a_closed_channel, reason_of,
    },
};

/// The limit for opening a channel, which takes one or two round trips.
const OPEN_DEADLINE: Duration = Duration::from_secs(10);
/// The most messages taken from callers before confirms are read again.
const REQUESTS_AT_ONCE: usize = 256;
/// The number of polls without a ready confirm after which none is ready. One poll is not enough: a set of futures may return early when it
/// has polled as many futures as it holds, and each future may be polled up to three times in vain.
const IDLE_POLLS: usize = 4;
/// The most consecutive channels that end without a confirm and without a rejected message. After that the connection counts as broken.
const FRUITLESS_CHANNELS_MAX: u32 = 3;

/// Minimum time for which a channel with nacked messages is used before it is replaced. A full queue nacks too, and a new channel does not
/// help then.
const NACKING_CHANNEL_MIN: Duration = Duration::from_secs(2);

struct ConfirmChannel {
    link: Arc<Link>,
    requests: mpsc::UnboundedReceiver<Request>,
    pending: Pending,
    /// Whether the last channel ended because the broker rejected a message that is still pending.
    has_rejected: bool,
    fruitless_channels: u32,
    /// A message was nacked on this channel.
    has_nacked: bool,
}

/// A confirm, or the error of the channel that ended before it.
type Confirmed = (Number, lapin::Result<Confirmation>);
type Confirming = BoxFuture<'static, Confirmed>;
type Confirms = FuturesUnordered<Confirming>;

/// Why the task stopped using its current AMQP channel.
enum End {
    Stopped,
    SessionLost,
    ChannelClosed,
}

pub(super) fn start(link: Arc<Link>) -> mpsc::UnboundedSender<Request> {
    // Unbounded, because a caller acquires room before it sends.
    let (sender, requests) = mpsc::unbounded_channel();
    let channel = ConfirmChannel {
        link,
        requests,
        pending: Pending::default(),
        has_rejected: false,
        fruitless_channels: 0,
        has_nacked: false,
    };
    tokio::spawn(channel.run());
    sender
}

impl ConfirmChannel {
    async fn run(mut self) {
        let mut sessions = self.link.sessions();
        loop {
            let wait = async {
                let found = sessions.wait_for(|s| s.as_ref().is_some_and(|s| !s.failed().is_cancelled())).await;
                found.ok().and_then(|session| session.clone())
            };
            let Some(Some(session)) = self.serve_during(wait).await else { break };
            if let End::Stopped = self.use_channels(&session).await {
                break;
            }
        }
        self.requests.close();
        while let Ok(request) = self.requests.try_recv() {
            self.pending.add(request);
        }
        self.pending.close(self.link.options.confirm_deadline);
    }

    /// Uses one channel after the other until the session or the link ends.
    async fn use_channels(&mut self, session: &Session) -> End {
        let _user = session.user();
        loop {
            let Some(opened) = self.serve_during(open(session)).await else { return End::Stopped };
            let channel = match opened {
                Ok(channel) => Arc::new(channel),
                Err(reason) => {
                    session.fail(reason);
                    return End::SessionLost;
                }
            };
            let end = if self.has_rejected {
                self.isolate(session, &channel).await
            } else {
                let mut confirms = Confirms::new();
                for number in self.pending.numbers() {
                    let unasked = self.send(&channel, &confirms, number);
                    confirms.extend(unasked);
                }
                self.publish_until_end(session, &channel, confirms).await
            };
            self.pending.channel_ended();
            self.has_nacked = false;
            if !matches!(end, End::ChannelClosed) {
                return end;
            }
            self.fruitless_channels += 1;
            if self.fruitless_channels > FRUITLESS_CHANNELS_MAX {
                session.fail("the broker keeps closing channels");
                return End::SessionLost;
            }
        }
    }

    /// Publishes new requests until the channel ends. All pending messages have been sent on it.
    ///
    /// lapin would wake this task when it has written a message, only for it to wait for the confirm. So the task asks for its confirms when
    /// the broker has sent something.
    async fn publish_until_end(
        &mut self,
        session: &Session,
        channel: &Arc<OpenChannel>,
        mut confirms: Confirms,
    ) -> End {
        let (mut requests, mut unasked) = (Vec::with_capacity(REQUESTS_AT_ONCE), Vec::new());
        let mut arrived = session.arrived();
        let replaced_from = Instant::now() + NACKING_CHANNEL_MIN;
        loop {
            tokio::select! {
                biased;
                () = self.link.stop.cancelled() => return End::Stopped,
                Some(first) = confirms.next() => {
                    if let Some(error) = self.settle(first, &mut confirms) {
                        return self.ended(session, &error);
                    }
                    if self.has_nacked && confirms.is_empty() && unasked.is_empty() && Instant::now() >= replaced_from {
                        debug!("the broker nacks messages on a publishing channel, replacing it");
                        return End::ChannelClosed;
                    }
                }
                () = session.failed().cancelled() => return End::SessionLost,
                count = self.requests.recv_many(&mut requests, REQUESTS_AT_ONCE) => {
                    if count == 0 {
                        return End::Stopped;
                    }
                    arrived.mark_unchanged();
                    for request in requests.drain(..) {
                        let number = self.pending.add(request);
                        unasked.extend(self.send(channel, &confirms, number));
                    }
                }
                Ok(()) = arrived.changed(), if !unasked.is_empty() => confirms.extend(unasked.drain(..)),
                () = until(self.pending.next_deadline()) => self.expire(),
            }
        }
    }

    /// Sends the pending messages one at a time, to find the one that the broker rejects. It does not wait for confirms, because a queue
    /// without a majority sends none for hours, and messages to other queues would wait behind it.
    async fn isolate(&mut self, session: &Session, channel: &Arc<OpenChannel>) -> End {
        let mut confirms = Confirms::new();
        let mut next = 0;
        // Looked up each time, because requests may have arrived while the broker processed the last one.
        while let Some(number) = self.pending.first_from(next) {
            next = number + 1;
            let Some(message) = self.pending.take_to_send(number) else { continue };
            let Some((confirm, processed)) = self.serve_during(send_and_sync(channel, &message)).await else {
                return End::Stopped;
            };
            confirms.extend(confirm.map(|confirm| async move { (number, confirm.await) }.boxed()));
            let failure = match processed {
                Ok(()) => confirms.next().now_or_never().flatten().and_then(|first| self.settle(first, &mut confirms)),
                // The confirms of a channel that has ended carry the reason.
                Err(error) => confirms.next().await.and_then(|first| self.settle(first, &mut confirms)).or(Some(error)),
            };
            if let Some(error) = failure {
                if blames_a_message(&error) {
                    self.reject(number, &error);
                }
                return self.ended(session, &error);
            }
        }
        self.has_rejected = false;
        // The broker accepted all of them, so the channel is used for the next messages.
        self.publish_until_end(session, channel, confirms).await
    }

    /// Sends the pending message with this number, unless its caller has left. Returns its confirm, or adds it to `confirms` if it is here
    /// already: an error.
    fn send(&mut self, channel: &Arc<OpenChannel>, confirms: &Confirms, number: Number) -> Option<Confirming> {
        let (message, channel) = (self.pending.take_to_send(number)?, channel.clone());
        let mut confirming = async move { (number, send(&channel, &message).await) }.boxed();
        // lapin queues a message when its future is polled for the first time.
        match (&mut confirming).now_or_never() {
            Some(confirmed) => {
                confirms.push(ready(confirmed).boxed());
                None
            }
            None => Some(confirming),
        }
    }

    /// Settles this confirm and all others that are ready. Returns the error if the channel has ended.
    fn settle(&mut self, first: Confirmed, confirms: &mut Confirms) -> Option<lapin::Error> {
        let mut settled = Vec::new();
        let mut failure: Option<lapin::Error> = None;
        for confirmed in take_ready(first, confirms) {
            match confirmed {
                (number, Ok(confirmation)) => settled.push((number, self.read(confirmation))),
                // The broker's own error explains more than lapin's error about the channel's state.
                (_, Err(error)) if failure.as_ref().is_none_or(|known| !known.is_amqp_error()) => failure = Some(error),
                (_, Err(_)) => {}
            }
        }
        // All returns are known by now, so an ack without a return means that the message was routed.
        if !settled.is_empty() {
            self.fruitless_channels = 0;
        }
        for (number, confirm) in settled {
            self.pending.settle(number, confirm);
        }
        failure
    }

    /// Records the return that a confirm may carry.
    fn read(&mut self, confirmation: Confirmation) -> Confirm {
        let (confirm, returned) = match confirmation {
            Confirmation::Ack(returned) => (Confirm::Ack, returned),
            Confirmation::Nack(returned) => {
                self.has_nacked = true;
                (Confirm::Nack, returned)
            }
            Confirmation::NotRequested => unreachable!("the channel is in confirm mode before anything is sent"),
        };
        if let Some(returned) = returned {
            self.pending.mark_returned(&read_return(&returned));
        }
        confirm
    }

    fn ended(&mut self, session: &Session, error: &lapin::Error) -> End {
        let reason = reason_of(error);
        if blames_a_message(error) && !self.pending.is_empty() {
            warn!(reason, "the broker rejected a message in a batch, publishing one at a time to identify it");
            self.has_rejected = true;
        }
        let channel_only = is_channel_level(error) || is_of_a_closed_channel(error);
        if channel_only && session.alive() {
            debug!(reason, "a publishing channel ended");
            return End::ChannelClosed;
        }
        session.fail(reason);
        End::SessionLost
    }

    fn reject(&mut self, number: Number, error: &lapin::Error) {
        self.fruitless_channels = 0;
        let reason = reason_of(error);
        self.pending.refuse(number, |message| {
            if is_not_found(error) {
                PublishError::NoExchange { exchange: message.exchange.to_owned() }
            } else if is_access_refused(error) {
                PublishError::Forbidden { reason }
            } else {
                PublishError::Refused { reason }
            }
        });
    }

    /// Awaits `wait`. In the meantime it accepts requests and enforces deadlines. `None` if the link stops.
    async fn serve_during<T>(&mut self, wait: impl Future<Output = T>) -> Option<T> {
        let mut wait = std::pin::pin!(wait);
        loop {
            tokio::select! {
                biased;
                () = self.link.stop.cancelled() => return None,
                outcome = &mut wait => return Some(outcome),
                request = self.requests.recv() => {
                    self.pending.add(request?);
                }
                () = until(self.pending.next_deadline()) => self.expire(),
            }
        }
    }

    fn expire(&mut self) {
        let trouble = self.link.trouble();
        self.pending.expire(Instant::now(), self.link.options.confirm_deadline, trouble.as_ref());
    }
}

/// All items that are ready now. It returns every item that it takes, because the stream yields each only once.
fn take_ready<T>(first: T, more: &mut (impl Stream<Item = T> + Unpin)) -> Vec<T> {
    let mut ready = vec![first];
    let mut idle_polls = 0;
    while idle_polls < IDLE_POLLS {
        match more.next().now_or_never().flatten() {
            Some(item) => ready.push(item),
            None => idle_polls += 1,
        }
    }
    ready
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

async fn open(session: &Session) -> Result<OpenChannel, String> {
    let opened = async {
        let channel = session.publish_channel().await?;
        channel.confirm_select(ConfirmSelectOptions { nowait: false }).await?;
        Ok(channel)
    };
    match timeout(OPEN_DEADLINE, opened).await {
        Ok(opened) => opened.map_err(|error: lapin::Error| reason_of(&error)),
        Err(_) => Err(format!("no channel within {OPEN_DEADLINE:?}")),
    }
}

/// Sends a message and returns once the broker has processed it; the broker processes the frames of a channel in order.
async fn send_and_sync(channel: &Channel, message: &Message) -> (Option<PublisherConfirm>, lapin::Result<()>) {
    match publish(channel, message).await {
        // Any method that the broker answers in order serves; this one has no effect, because the channel has no consumer.
        Ok(confirm) => (Some(confirm), channel.basic_qos(1, BasicQosOptions::default()).await),
        Err(error) => (None, Err(error)),
    }
}

async fn send(channel: &Channel, message: &Message) -> lapin::Result<Confirmation> {
    publish(channel, message).await?.await
}

/// Returns once the message is written to the socket.
async fn publish(channel: &Channel, message: &Message) -> lapin::Result<PublisherConfirm> {
    let options = BasicPublishOptions { mandatory: true, immediate: false };
    let (exchange, key) = (message.exchange.into(), message.routing_key.as_str().into());
    channel.basic_publish(exchange, key, options, &message.body, message.properties.to_amqp()).await
}

fn read_return(returned: &BasicReturnMessage) -> Return {
    Return {
        message_id: returned.properties.message_id().as_ref().map(ToString::to_string),
        exchange: returned.exchange.to_string(),
        routing_key: returned.routing_key.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures::stream;

    use super::*;

    #[test]
    fn a_confirm_that_arrives_at_any_poll_is_taken_now_or_later() {
        for idle_polls in 0..2 * IDLE_POLLS {
            let mut polls = 0;
            let mut confirms = stream::poll_fn(|_| {
                polls += 1;
                if polls == idle_polls + 1 { Poll::Ready(Some(2)) } else { Poll::Pending }
            });
            let mut taken = take_ready(1, &mut confirms);
            for _ in 0..2 * IDLE_POLLS {
                taken.extend(confirms.next().now_or_never().flatten());
            }
            assert_eq!(taken, [1, 2], "ready after {idle_polls} polls");
        }
    }
}
