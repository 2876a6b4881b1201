//! The task behind a consumer.

use std::{future::ready, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, stream::Fuse};
use lapin::{
    Channel,
    options::{BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions},
    types::{AMQPValue, FieldTable},
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, timeout},
};
use tracing::{debug, warn};

use super::{
    Incoming, Start,
    position::{self, Position, Resumed},
};
use crate::{
    Delivery,
    backoff::Backoff,
    delivery::STREAM_OFFSET,
    link::{Link, OpenChannel, Session, is_brokers_defect, is_not_found, reason_of},
    topology::{self, Declaration},
};

/// The limit for opening a channel and subscribing, or for ending a subscription: a few round trips.
const SUBSCRIBE_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for the repeated last message of a stream.
const REPEAT_DEADLINE: Duration = Duration::from_secs(5);
/// A subscription that lasted this long starts the backoff over when it breaks.
const STEADY: Duration = Duration::from_secs(10);
/// The argument of a subscription with its priority among the queue's subscribers.
const PRIORITY: &str = "x-priority";

#[derive(Debug)]
pub(super) enum Command {
    Stop(oneshot::Sender<()>),
    Prefetch(u16, oneshot::Sender<()>),
}

pub(super) struct Subscriber {
    link: Arc<Link>,
    queue: String,
    prefetch: u16,
    from: Start,
    /// How far a stream has been read.
    last: Option<Position>,
    out: Outlet,
    commands: mpsc::UnboundedReceiver<Command>,
    /// Whether the current outage was reported to the reader.
    told: bool,
    /// Subscribing may have closed the connection, and with it every other subscription. The next attempt first uses a separate connection.
    is_suspect: bool,
    /// Whether the broker can send deliveries; read through [`super::Consumer::subscription`].
    subscribed: watch::Sender<bool>,
    /// Answered when the task ends.
    stopped: Option<oneshot::Sender<()>>,
}

struct Subscription {
    channel: Arc<OpenChannel>,
    stream: Deliveries,
}

/// Receives each item. The subscriber's task calls it, so it must not block.
pub(super) type Outlet = Box<dyn FnMut(Incoming) + Send>;

/// Fused, because lapin's stream reports its end only once.
type Deliveries = Fuse<lapin::Consumer>;

/// Why a subscription could not be made, or has ended.
enum Broken {
    /// The reader stopped, or the link was closed.
    Stop,
    Fault(String),
    /// The queue is gone.
    NoQueue(String),
    /// The stream was replaced or truncated.
    OtherStream,
    /// The broker closed the whole connection with an internal error, or did not answer. It reacts so to a subscription to a queue that it
    /// has not started.
    Defect(String),
}

impl Broken {
    fn by(error: &lapin::Error) -> Self {
        match reason_of(error) {
            reason if is_not_found(error) => Self::NoQueue(reason),
            reason if is_brokers_defect(error) => Self::Defect(reason),
            reason => Self::Fault(reason),
        }
    }

    fn unanswered() -> Self {
        Self::Defect(format!("the broker did not answer within {SUBSCRIBE_DEADLINE:?}"))
    }
}

impl Subscriber {
    pub(super) fn new(
        link: Arc<Link>,
        queue: String,
        prefetch: u16,
        from: Start,
        out: Outlet,
        commands: mpsc::UnboundedReceiver<Command>,
        subscribed: watch::Sender<bool>,
    ) -> Self {
        Self {
            link,
            queue,
            prefetch: prefetch.max(1),
            from,
            last: None,
            out,
            commands,
            told: false,
            is_suspect: false,
            subscribed,
            stopped: None,
        }
    }

    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            let started = Instant::now();
            let is_gone = match self.once().await {
                Broken::Stop => break,
                Broken::Fault(reason) => {
                    self.tell(reason);
                    false
                }
                Broken::NoQueue(reason) => {
                    self.tell(reason);
                    self.last = None;
                    true
                }
                Broken::OtherStream => {
                    warn!(queue = self.queue, "the stream was recreated, reading it from the beginning");
                    self.tell("the stream was recreated".to_owned());
                    self.last = None;
                    false
                }
                Broken::Defect(reason) => {
                    self.is_suspect = true;
                    self.tell(reason);
                    false
                }
            };
            if started.elapsed() > STEADY {
                backoff = Backoff::default();
            }
            if self.idle(backoff.wait()).await.is_none() {
                break;
            }
            if is_gone {
                self.declare_again().await;
            }
        }
        if let Some(stopped) = self.stopped.take() {
            let _reader_gone = stopped.send(());
        }
    }

    /// Subscribes on one channel of one session until either ends.
    async fn once(&mut self) -> Broken {
        let mut sessions = self.link.sessions();
        let wait = async {
            let found = sessions.wait_for(|s| s.as_ref().is_some_and(|s| !s.failed().is_cancelled())).await;
            found.ok().and_then(|session| session.clone())
        };
        let Some(Some(session)) = self.idle(wait).await else { return Broken::Stop };
        let (link, queue) = (self.link.clone(), self.queue.clone());
        if self.is_suspect {
            let arguments = self.arguments();
            match self.idle(try_apart(&link, &session, &queue, arguments)).await {
                None => return Broken::Stop,
                Some(Err(broken)) => return broken,
                Some(Ok(())) => self.is_suspect = false,
            }
        }
        let _user = session.user();
        let prefetch = self.prefetch;
        let arguments = self.arguments();
        let Some(subscribed) = self.idle(open(&session, &queue, prefetch, arguments)).await else {
            return Broken::Stop;
        };
        let mut subscription = match subscribed {
            Ok(subscription) => subscription,
            Err(broken) => return broken,
        };
        if let Some(last) = self.last.clone() {
            match self.idle(repeated(&mut subscription, &last)).await {
                None => return Broken::Stop,
                Some(Err(broken)) => return broken,
                Some(Ok(None)) => {}
                Some(Ok(Some(later))) => self.pass(later, &subscription.channel),
            }
        }
        // The prefetch may have been changed during the subscribe.
        let renewed = if self.prefetch == prefetch { Ok(()) } else { self.renew(&session, &mut subscription).await };
        let broken = match renewed {
            Ok(()) => self.follow(&session, &mut subscription).await,
            Err(broken) => broken,
        };
        self.subscribed.send_replace(false);
        let has_ended = matches!(broken, Broken::Stop) && self.cancel(&mut subscription).await.is_ok();
        if !has_ended {
            let Subscription { channel, stream } = subscription;
            leave(session, channel, ready(Ok(stream)));
        }
        broken
    }

    /// Passes deliveries on until the subscription breaks.
    async fn follow(&mut self, session: &Arc<Session>, subscription: &mut Subscription) -> Broken {
        debug!(queue = self.queue, prefetch = self.prefetch, "subscribed");
        self.told = false;
        self.subscribed.send_replace(true);
        loop {
            tokio::select! {
                biased;
                () = self.link.stop.cancelled() => return Broken::Stop,
                command = self.commands.recv() => match command {
                    None => return Broken::Stop,
                    Some(Command::Stop(done)) => {
                        self.stopped = Some(done);
                        return Broken::Stop;
                    }
                    Some(Command::Prefetch(prefetch, done)) => {
                        self.prefetch = prefetch.max(1);
                        if let Err(broken) = self.renew(session, subscription).await {
                            return broken;
                        }
                        let _reader_gone = done.send(());
                    }
                },
                () = session.failed().cancelled() => return Broken::Fault(session.reason()),
                delivery = subscription.stream.next() => {
                    let mut ready = Some(delivery);
                    while let Some(delivery) = ready {
                        match delivery {
                            Some(Ok(delivery)) => self.pass(delivery, &subscription.channel),
                            Some(Err(error)) => return Broken::Fault(reason_of(&error)),
                            // The stream ended without an error on the channel: the queue was deleted, or its node went down.
                            None => return Broken::NoQueue(format!("the broker ended the subscription to {}", self.queue)),
                        }
                        // The prefetch bounds how many are ready.
                        ready = subscription.stream.next().now_or_never();
                    }
                }
            }
        }
    }

    fn pass(&mut self, delivery: lapin::message::Delivery, channel: &Arc<OpenChannel>) {
        let delivery = Delivery::new(delivery, channel.clone());
        if self.from == Start::Stream {
            self.last = Position::of(&delivery);
        }
        (self.out)(Incoming::Delivery(delivery));
    }

    fn arguments(&self) -> FieldTable {
        let mut arguments = FieldTable::default();
        match self.from {
            Start::Queue { priority: 0 } => {}
            Start::Queue { priority } => {
                arguments.insert(PRIORITY.into(), AMQPValue::LongInt(priority.into()));
            }
            Start::Stream => {
                arguments.insert(STREAM_OFFSET.into(), position::argument(self.last.as_ref()));
            }
        }
        arguments
    }

    /// The prefetch of a subscription can't change, so this ends it and subscribes again on the same channel. Earlier deliveries of the
    /// channel can still be settled. Messages sent in the meantime are requeued, which the broker counts as a delivery.
    async fn renew(&mut self, session: &Arc<Session>, subscription: &mut Subscription) -> Result<(), Broken> {
        self.cancel(subscription).await?;
        let (channel, queue, prefetch) = (subscription.channel.clone(), self.queue.clone(), self.prefetch);
        let arguments = self.arguments();
        let mut again = Box::pin(async move { subscribe(&channel, &queue, prefetch, arguments).await });
        match timeout(SUBSCRIBE_DEADLINE, &mut again).await {
            Ok(subscribed) => {
                subscription.stream = subscribed.map_err(|error| Broken::by(&error))?;
                Ok(())
            }
            Err(_) => {
                leave(session.clone(), subscription.channel.clone(), again);
                Err(Broken::unanswered())
            }
        }
    }

    /// Ends the subscription and passes on the deliveries in transit.
    async fn cancel(&mut self, subscription: &mut Subscription) -> Result<(), Broken> {
        let tag = subscription.stream.get_ref().tag();
        within(subscription.channel.basic_cancel(tag, BasicCancelOptions { nowait: false })).await?;
        while let Some(delivery) = subscription.stream.next().await {
            match delivery {
                Ok(delivery) => self.pass(delivery, &subscription.channel),
                Err(error) => return Err(Broken::Fault(reason_of(&error))),
            }
        }
        subscription.channel.consumer_cancelled();
        Ok(())
    }

    /// Waits for `wait` while there is no subscription. `None` if the consumer is to end.
    async fn idle<T>(&mut self, wait: impl Future<Output = T>) -> Option<T> {
        let mut wait = std::pin::pin!(wait);
        loop {
            tokio::select! {
                biased;
                () = self.link.stop.cancelled() => return None,
                command = self.commands.recv() => match command? {
                    Command::Stop(done) => {
                        self.stopped = Some(done);
                        return None;
                    }
                    Command::Prefetch(prefetch, done) => {
                        self.prefetch = prefetch.max(1);
                        let _reader_gone = done.send(());
                    }
                },
                outcome = &mut wait => return Some(outcome),
            }
        }
    }

    fn tell(&mut self, reason: String) {
        if self.told {
            debug!(queue = self.queue, reason, "still not subscribed");
            return;
        }
        warn!(queue = self.queue, reason, "subscription interrupted");
        self.told = true;
        (self.out)(Incoming::Interrupted { reason });
    }

    /// Declares only this queue, and not at once. A broker before 4.0 that finds a new queue of the same name when it notifies a consumer
    /// of the deletion silently attaches the consumer to the new queue and then delivers nothing to it. The other queues may be about to be
    /// deleted too, and this queue may have other consumers.
    async fn declare_again(&mut self) {
        let found = Declaration::of_queue(&self.queue).filter(|declaration| declaration.has_subscriber(&self.queue));
        let Some(declaration) = found else { return };
        let (link, queue) = (self.link.clone(), self.queue.clone());
        if let Some(Err(error)) = self.idle(topology::declare_queue(&link, &declaration, &queue)).await {
            warn!(queue = self.queue, %error, "failed to declare the queue again");
        }
    }
}

/// Waits for the last message that was read, with which a resumed subscription begins, and skips it. Returns a later message
/// that came instead.
async fn repeated(
    subscription: &mut Subscription,
    last: &Position,
) -> Result<Option<lapin::message::Delivery>, Broken> {
    // A stream that ends before the message sends nothing.
    let Ok(first) = timeout(REPEAT_DEADLINE, subscription.stream.next()).await else { return Err(Broken::OtherStream) };
    let delivery = match first {
        Some(Ok(delivery)) => delivery,
        Some(Err(error)) => return Err(Broken::by(&error)),
        None => return Err(Broken::NoQueue("the broker ended the subscription".to_owned())),
    };
    match Position::of_amqp(&delivery).map(|first| last.resume(&first)) {
        Some(Resumed::Repeated) => {
            within(delivery.ack(BasicAckOptions { multiple: false })).await?;
            Ok(None)
        }
        Some(Resumed::Later) => Ok(Some(delivery)),
        Some(Resumed::Elsewhere) | None => Err(Broken::OtherStream),
    }
}

async fn open(session: &Session, queue: &str, prefetch: u16, arguments: FieldTable) -> Result<Subscription, Broken> {
    within(async {
        let channel = session.consume_channel().await?;
        let stream = subscribe(&channel, queue, prefetch, arguments).await?;
        Ok(Subscription { channel: Arc::new(channel), stream })
    })
    .await
}

/// Tries to subscribe over a separate connection and closes it. A message that arrives there is requeued.
async fn try_apart(link: &Link, session: &Session, queue: &str, arguments: FieldTable) -> Result<(), Broken> {
    let trial = async {
        let connection = link.connection_apart(session).await.map_err(|error| Broken::Fault(error.to_string()))?;
        let subscribing = async {
            let channel = connection.create_channel().await?;
            let _deliveries = subscribe(&channel, queue, 1, arguments).await?;
            connection.close(200, "OK".into()).await
        };
        subscribing.await.map_err(|error| Broken::by(&error))
    };
    timeout(SUBSCRIBE_DEADLINE, trial).await.unwrap_or_else(|_| Err(Broken::unanswered()))
}

async fn subscribe(channel: &Channel, queue: &str, prefetch: u16, arguments: FieldTable) -> lapin::Result<Deliveries> {
    // Not global: the bound applies to each subscription of the channel, so the deliveries of an ended one don't count.
    channel.basic_qos(prefetch, BasicQosOptions { global: false }).await?;
    let options = BasicConsumeOptions { no_local: false, no_ack: false, exclusive: false, nowait: false };
    // The broker chooses a new name for each subscription.
    Ok(channel.basic_consume(queue.into(), "".into(), options, arguments).await?.fuse())
}

async fn within<T>(work: impl Future<Output = lapin::Result<T>>) -> Result<T, Broken> {
    match timeout(SUBSCRIBE_DEADLINE, work).await {
        Ok(done) => done.map_err(|error| Broken::by(&error)),
        Err(_) => Err(Broken::unanswered()),
    }
}

/// Cancels a subscription that the task no longer waits for, because the broker may still create it. Unsettled deliveries hold the channel
/// open, so messages of such a subscription would stay unsettled until the last of them is done.
fn leave(
    session: Arc<Session>,
    channel: Arc<OpenChannel>,
    subscribing: impl Future<Output = lapin::Result<Deliveries>> + Send + 'static,
) {
    let give_back = async move {
        let mut stream = subscribing.await?;
        channel.basic_cancel(stream.get_ref().tag(), BasicCancelOptions { nowait: false }).await?;
        while let Some(delivery) = stream.next().await {
            delivery?.nack(BasicNackOptions { multiple: false, requeue: true }).await?;
        }
        lapin::Result::Ok(())
    };
    tokio::spawn(async move {
        let _user = session.user();
        tokio::select! {
            () = session.failed().cancelled() => {}
            // An error means that the channel has ended, which requeues everything.
            _ended = give_back => {}
        }
    });
}
