//! Consuming from one queue, through outages.
//!
//! A task holds the subscription. It subscribes again when the connection or the channel is lost, and when the broker ends the
//! subscription alone, which it does without an error when a queue is deleted or moves. A missing queue of gpufleet is
//! declared again.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use crate::{Delivery, link::Link};

mod position;
mod subscriber;

use subscriber::{Command, Outlet, Subscriber};

/// Deliveries of one queue, in a channel. Dropping it ends the subscription. Received deliveries can still be settled; deliveries in
/// transit return to the queue once that has happened.
#[derive(Debug)]
pub struct Consumer {
    incoming: mpsc::UnboundedReceiver<Incoming>,
    subscription: Subscription,
    from: Start,
}

/// A subscription to one queue that passes its deliveries to a function. Dropping it ends the subscription as dropping a [`Consumer`] does.
#[derive(Debug)]
pub struct Subscription {
    commands: mpsc::UnboundedSender<Command>,
    subscribed: watch::Receiver<bool>,
}

/// Where a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// At the head of a queue, before the subscribers with a lower priority.
    Queue { priority: u16 },
    /// At the first message that a stream still has; after an interruption, behind the last message that was read.
    Stream,
}

/// The most bytes of a body that a consumer keeps, by the message's exchange. The rest is dropped as it arrives. A prefetch counts
/// messages, so without a bound a few large ones fill the memory before the consumer looks at the first.
pub type BodyBound = fn(exchange: &str) -> usize;

/// An item of a [`Consumer`].
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are deliveries; a box for each would cost more than the room"
)]
pub enum Incoming {
    Delivery(Delivery),
    /// The subscription broke; reported once per outage. The consumer subscribes again by itself. Earlier deliveries can't be settled any
    /// more and are redelivered, unless they come from a stream.
    Interrupted {
        reason: String,
    },
}

impl Consumer {
    pub(crate) fn start(link: Arc<Link>, queue: String, prefetch: u16, from: Start, kept: BodyBound) -> Self {
        // Unbounded, because the prefetch bounds what the broker sends.
        let (out, incoming) = mpsc::unbounded_channel();
        let pass = move |mut item| {
            if let Incoming::Delivery(delivery) = &mut item {
                delivery.cut(kept(&delivery.exchange));
            }
            // Without a reader the delivery stays unsettled and is requeued when the channel closes.
            let _reader_gone = out.send(item);
        };
        Self { incoming, subscription: Subscription::start(link, queue, prefetch, from, Box::new(pass)), from }
    }

    /// Waits until the broker has confirmed the subscription or the subscription has ended. Cancelling is harmless.
    pub async fn subscribed(&mut self) {
        self.subscription.subscribed().await;
    }

    /// Shows whether the broker has confirmed the subscription, now and later: [`Subscription::status`].
    pub fn status(&self) -> watch::Receiver<bool> {
        self.subscription.status()
    }

    /// The next delivery, or `None` after [`Consumer::stop`] or when the broker was closed. Cancelling loses nothing.
    pub async fn next(&mut self) -> Option<Incoming> {
        loop {
            match self.incoming.recv().await? {
                // It arrived before an outage and will be redelivered, so handing it out would run its job twice. A stream does not
                // redeliver a message.
                Incoming::Delivery(delivery) if self.from != Start::Stream && !delivery.acker.is_live() => {}
                incoming => return Some(incoming),
            }
        }
    }

    /// Ends the subscription. Deliveries that have already arrived still come out of [`Consumer::next`], then `None`. If cancelled, the
    /// subscription still ends.
    pub async fn stop(&mut self) {
        self.subscription.stop().await;
    }

    /// Subscribes again with another prefetch: [`Subscription::set_prefetch`].
    pub async fn set_prefetch(&mut self, prefetch: u16) {
        self.subscription.set_prefetch(prefetch).await;
    }
}

impl Subscription {
    pub(crate) fn start(link: Arc<Link>, queue: String, prefetch: u16, from: Start, out: Outlet) -> Self {
        let (commands, orders) = mpsc::unbounded_channel();
        let (subscribing, subscribed) = watch::channel(false);
        tokio::spawn(Subscriber::new(link, queue, prefetch, from, out, orders, subscribing).run());
        Self { commands, subscribed }
    }

    /// Waits until the broker has confirmed the subscription or the subscription has ended. Cancelling is harmless.
    pub async fn subscribed(&mut self) {
        // An error means that the subscriber has ended.
        let _ended = self.subscribed.wait_for(|subscribed| *subscribed).await;
    }

    /// Whether the broker has confirmed the subscription, now and later. The sender is dropped when the subscription has ended.
    pub fn status(&self) -> watch::Receiver<bool> {
        self.subscribed.clone()
    }

    /// Ends the subscription, once the deliveries that have already arrived are passed on. If cancelled, the subscription still ends.
    pub async fn stop(&mut self) {
        self.order(Command::Stop).await;
    }

    /// Subscribes again with another prefetch, which applies to new deliveries. Earlier deliveries stay unsettled and can be settled. A
    /// quorum queue takes back the messages on their way to the old subscription, and counts each as delivered once more. 0 counts as 1. If
    /// cancelled, the prefetch still changes.
    pub async fn set_prefetch(&mut self, prefetch: u16) {
        self.order(|done| Command::Prefetch(prefetch, done)).await;
    }

    async fn order(&self, command: impl FnOnce(oneshot::Sender<()>) -> Command) {
        let (done, carried_out) = oneshot::channel();
        if self.commands.send(command(done)).is_ok() {
            // An error means that the subscriber has ended, and with it the subscription.
            let _ended = carried_out.await;
        }
    }
}
