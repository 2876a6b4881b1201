//! Consumes progress.
//!
//! A task holds an exclusive queue, which the broker deletes with the connection, and binds it to the keys that are wanted. After an
//! outage it declares and binds again. Messages of the meantime are lost.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::StreamExt as _;
use gpufleet_schema::topology::{PROGRESS, PROGRESS_MESSAGES_MAX};
use lapin::{
    Channel,
    options::{BasicConsumeOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tracing::debug;

use crate::{
    ProgressError,
    backoff::Backoff,
    link::{Link, Session, is_access_refused, missing_exchange, reason_of},
};

/// The limit for declaring a queue and binding it, or for one more binding.
const DEADLINE: Duration = Duration::from_secs(10);
/// Messages that may wait for the reader. If it is slow, the newest are dropped.
const WAITING_MAX: usize = 256;

/// Receives progress until it is dropped.
#[derive(Debug)]
pub struct ProgressConsumer {
    orders: mpsc::UnboundedSender<Order>,
    bodies: mpsc::Receiver<Vec<u8>>,
}

/// Adds and removes bindings of a [`ProgressConsumer`].
#[derive(Debug, Clone)]
pub struct ProgressBindings(mpsc::UnboundedSender<Order>);

#[derive(Debug)]
enum Order {
    Add(Wish),
    Remove(String),
}

/// A key to bind, and where the answer goes.
#[derive(Debug)]
struct Wish {
    key: String,
    answer: oneshot::Sender<Result<(), ProgressError>>,
}

/// Why the task stopped using a channel.
enum End {
    Stopped,
    Broken(String),
}

impl ProgressConsumer {
    pub(crate) fn start(link: Arc<Link>, queue: String) -> Self {
        let (orders, received) = mpsc::unbounded_channel();
        let (out, bodies) = mpsc::channel(WAITING_MAX);
        tokio::spawn(Task { link, queue, keys: BTreeMap::new(), wish: None, orders: received, out }.run());
        Self { orders, bodies }
    }

    /// The next message; `None` when the broker was closed.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        self.bodies.recv().await
    }

    pub fn bindings(&self) -> ProgressBindings {
        ProgressBindings(self.orders.clone())
    }
}

impl ProgressBindings {
    /// Asks for messages with routing keys that match, and waits for the broker's answer. If cancelled, nothing was asked for.
    pub async fn add(&self, key: String) -> Result<(), ProgressError> {
        let (answer, answered) = oneshot::channel();
        let mut unanswered = Unanswered { bindings: self, key: Some(key.clone()) };
        self.0.send(Order::Add(Wish { key, answer })).map_err(|_| ProgressError::Closed)?;
        let answer = timeout(DEADLINE, answered).await.map_err(|_| ProgressError::Timeout { waited: DEADLINE })?;
        unanswered.key = None;
        answer.unwrap_or(Err(ProgressError::Closed))
    }

    /// Takes back what [`Self::add`] asked for.
    pub fn remove(&self, key: String) {
        // An error means that the task has ended.
        drop(self.0.send(Order::Remove(key)));
    }
}

/// Takes back the wish for a key that is no longer waited for.
struct Unanswered<'a> {
    bindings: &'a ProgressBindings,
    key: Option<String>,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        self.key.take().into_iter().for_each(|key| self.bindings.remove(key));
    }
}

struct Task {
    link: Arc<Link>,
    queue: String,
    /// The keys that are bound, and how often each was asked for.
    keys: BTreeMap<String, usize>,
    /// The wish that is not answered yet.
    wish: Option<Wish>,
    orders: mpsc::UnboundedReceiver<Order>,
    out: mpsc::Sender<Vec<u8>>,
}

impl Task {
    async fn run(mut self) {
        let mut backoff = Backoff::default();
        let mut sessions = self.link.sessions();
        loop {
            let found = sessions.wait_for(|s| s.as_ref().is_some_and(|s| !s.failed().is_cancelled()));
            let session = tokio::select! {
                () = self.link.stop.cancelled() => return,
                () = self.out.closed() => return,
                found = found => match found.ok().and_then(|session| session.clone()) {
                    Some(session) => session,
                    None => return,
                },
            };
            match self.consume(&session).await {
                End::Stopped => return,
                End::Broken(reason) => debug!(queue = self.queue, reason, "progress was interrupted"),
            }
            tokio::select! {
                () = self.link.stop.cancelled() => return,
                () = self.out.closed() => return,
                () = backoff.wait() => {}
            }
        }
    }

    /// Consumes on one channel until it ends. There is no queue before there is a wish.
    async fn consume(&mut self, session: &Session) -> End {
        while self.keys.is_empty() && self.wish.is_none() {
            tokio::select! {
                () = self.link.stop.cancelled() => return End::Stopped,
                () = self.out.closed() => return End::Stopped,
                () = session.failed().cancelled() => return End::Broken(session.reason()),
                order = self.orders.recv() => match order {
                    Some(Order::Add(wish)) => self.wish = Some(wish),
                    Some(Order::Remove(_)) => {}
                    None => return End::Stopped,
                },
            }
        }
        let _user = session.user();
        let opening = async {
            let channel = session.consume_channel().await?;
            let mut arguments = FieldTable::default();
            arguments.insert("x-queue-type".into(), AMQPValue::LongString("classic".into()));
            arguments.insert("x-max-length".into(), AMQPValue::LongUInt(PROGRESS_MESSAGES_MAX));
            let options = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
            channel.queue_declare(self.queue.as_str().into(), options, arguments).await?;
            for key in self.keys.keys() {
                bind(&channel, &self.queue, key).await?;
            }
            let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
            let stream = channel.basic_consume(self.queue.as_str().into(), "".into(), options, FieldTable::default());
            let stream = stream.await?;
            lapin::Result::Ok((channel, stream))
        };
        let (channel, mut stream) = match timeout(DEADLINE, opening).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => return self.refused(&error),
            Err(_) => return End::Broken(format!("no queue within {DEADLINE:?}")),
        };
        loop {
            tokio::select! {
                biased;
                () = self.link.stop.cancelled() => return End::Stopped,
                () = self.out.closed() => return End::Stopped,
                () = session.failed().cancelled() => return End::Broken(session.reason()),
                order = next(&mut self.wish, &mut self.orders) => match order {
                    None => return End::Stopped,
                    Some(Order::Remove(key)) => {
                        if self.forget(&key) {
                            let (queue, key) = (self.queue.as_str().into(), key.as_str().into());
                            let unbinding = channel.queue_unbind(queue, PROGRESS.into(), key, FieldTable::default());
                            if let Err(error) = unbinding.await {
                                return End::Broken(reason_of(&error));
                            }
                        }
                    }
                    Some(Order::Add(wish)) => {
                        let bound = bind(&channel, &self.queue, &wish.key).await;
                        self.wish = Some(wish);
                        match bound {
                            Ok(()) => self.answer(Ok(())),
                            Err(error) => return self.refused(&error),
                        }
                    }
                },
                delivery = stream.next() => match delivery {
                    // A slow reader loses it.
                    Some(Ok(delivery)) => drop(self.out.try_send(delivery.data)),
                    Some(Err(error)) => return End::Broken(reason_of(&error)),
                    None => return End::Broken("the broker ended the subscription".to_owned()),
                },
            }
        }
    }

    /// The broker closed the channel. If it refused the wish, the wish is answered; otherwise it is made again.
    fn refused(&mut self, error: &lapin::Error) -> End {
        let reason = reason_of(error);
        if is_access_refused(error) {
            self.answer(Err(ProgressError::Forbidden { reason: reason.clone() }));
        } else if missing_exchange(error).is_some() {
            self.answer(Err(ProgressError::NoProgress));
        }
        End::Broken(reason)
    }

    /// Returns whether the key is no longer wanted.
    fn forget(&mut self, key: &str) -> bool {
        let Some(wanted) = self.keys.get_mut(key) else { return false };
        *wanted -= 1;
        *wanted == 0 && self.keys.remove(key).is_some()
    }

    fn answer(&mut self, answer: Result<(), ProgressError>) {
        let Some(wish) = self.wish.take() else { return };
        if answer.is_ok() {
            *self.keys.entry(wish.key).or_default() += 1;
        }
        // It may no longer be waited for.
        drop(wish.answer.send(answer));
    }
}

/// The wish that is not answered yet, or else the next order.
async fn next(wish: &mut Option<Wish>, orders: &mut mpsc::UnboundedReceiver<Order>) -> Option<Order> {
    match wish.take() {
        Some(wish) => Some(Order::Add(wish)),
        None => orders.recv().await,
    }
}

async fn bind(channel: &Channel, queue: &str, key: &str) -> lapin::Result<()> {
    let options = QueueBindOptions::default();
    channel.queue_bind(queue.into(), PROGRESS.into(), key.into(), options, FieldTable::default()).await
}
