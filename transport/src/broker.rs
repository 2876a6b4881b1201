//! The handle to one broker, through which every other part of the crate is used.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use gpufleet_schema::{
    ClassKey, ClientName, JobId, MessageId, Order, PoolName, WorkerName,
    topology::{PROGRAM_MARK_EXPIRES_MS, Speaker, program_claim, program_mark, worker_queue},
};
use tokio::sync::watch;
use tokio_util::sync::DropGuard;

use crate::{
    BodyBound, BrokerUrl, BrokerUrls, ConnectError, Consumer, DeclareError, Delivery, Incoming, Message, Options,
    ProgressConsumer, ProgressPublisher, PublishError, QueueDepth, QueueError, Release, State, Subscription,
    consumer::Start,
    link::{self, Link},
    order,
    publisher::Publisher,
    rights,
    topology::{self, Declaration, MoreQueues},
};

/// A connection to the broker that reconnects by itself. Clones share it. Dropping the last clone closes the connection without the
/// waiting that [`Broker::close`] does.
#[derive(Debug, Clone)]
pub struct Broker {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    link: Arc<Link>,
    publisher: Publisher,
    /// Created with the first event, because short commands have none.
    events: OnceLock<Publisher>,
    _stop: DropGuard,
}

/// The prefetch of a stream's reader.
const READ_AHEAD: u16 = 200;

impl Broker {
    /// Tries each node once; an unreachable broker is an error after at most `connect_deadline` for each. After later outages it
    /// reconnects. Cancelling abandons the attempt.
    pub async fn connect(options: Options) -> Result<Self, ConnectError> {
        let link = Link::open(options).await?;
        let publisher = Publisher::of_messages(&link);
        let _stop = link.stop.clone().drop_guard();
        Ok(Self { inner: Arc::new(Inner { link, publisher, events: OnceLock::new(), _stop }) })
    }

    /// The release that a node announces before login. It needs neither a valid user nor a vhost. Cancelling abandons the attempt.
    pub async fn release(node: &BrokerUrl, deadline: Duration) -> Result<Release, ConnectError> {
        link::release(node, deadline).await
    }

    pub fn state(&self) -> watch::Receiver<State> {
        self.inner.link.state()
    }

    pub fn urls(&self) -> &BrokerUrls {
        &self.inner.link.options.urls
    }

    /// Declares the exchanges and the queues that all roles share, as a worker does. Can be repeated. Cancelling leaves a part
    /// declared.
    pub async fn declare_base(&self) -> Result<(), DeclareError> {
        topology::declare(&self.inner.link, &Declaration::Base).await
    }

    /// Declares the exchanges and queues of the recorder, which are a part of the base. Cancelling leaves a part declared.
    pub async fn declare_ledger(&self) -> Result<(), DeclareError> {
        topology::declare(&self.inner.link, &Declaration::Ledger).await
    }

    /// Declares a pool's task queues. Needs [`Broker::declare_base`] once before. Cancelling leaves a part declared.
    pub async fn declare_pool(&self, pool: &PoolName) -> Result<(), DeclareError> {
        topology::declare(&self.inner.link, &Declaration::Pool(pool.clone())).await
    }

    /// Declares further queues of a pool. Needs [`Broker::declare_base`] once before. Cancelling leaves a part declared.
    pub async fn declare_more(&self, pool: &PoolName, more: MoreQueues) -> Result<(), DeclareError> {
        for declaration in more.declarations(pool) {
            topology::declare(&self.inner.link, &declaration).await?;
        }
        Ok(())
    }

    /// Declares the exchanges and the bindings of a pool again, and no queue. Bindings go with an exchange that is deleted. Cancelling
    /// leaves a part declared.
    pub async fn bind_again(&self, pool: &PoolName, more: MoreQueues) -> Result<(), DeclareError> {
        let declarations = [Declaration::Base, Declaration::Pool(pool.clone())];
        for declaration in declarations.into_iter().chain(more.declarations(pool)) {
            topology::bind_again(&self.inner.link, &declaration).await?;
        }
        Ok(())
    }

    /// Declares a client's reply queue as [`Options::reply_queue`] says. Needs the exchange of replies, which workers
    /// declare. Cancelling is harmless.
    pub async fn declare_reply_queue(&self, client: &ClientName) -> Result<(), DeclareError> {
        topology::declare(&self.inner.link, &Declaration::Replies(client.clone())).await
    }

    /// Declares a pool's queues for jobs that are forwarded to a device class. Needs [`Broker::declare_base`] once before. Cancelling
    /// leaves a part declared.
    pub async fn declare_forwarded(&self, pool: &PoolName, class: ClassKey) -> Result<(), DeclareError> {
        topology::declare(&self.inner.link, &Declaration::Forwarded(pool.clone(), class)).await
    }

    /// Declares the exchange of progress. Cancelling is harmless.
    pub async fn declare_progress(&self) -> Result<(), DeclareError> {
        topology::declare(&self.inner.link, &Declaration::Progress).await
    }

    /// Starts publishing progress, which may be lost.
    pub fn progress_publisher(&self) -> ProgressPublisher {
        ProgressPublisher::start(self.inner.link.clone())
    }

    /// Consumes progress from a queue with this name, which must be unique.
    pub fn progress_consumer(&self, queue: String) -> ProgressConsumer {
        ProgressConsumer::start(self.inner.link.clone(), queue)
    }

    /// Claims a worker's name for as long as this connection lasts. Returns false if another connection has it. Repeat it after a
    /// reconnection; cancelling is harmless.
    pub async fn claim_name(&self, worker: &WorkerName) -> Result<bool, QueueError> {
        topology::claim(&self.inner.link, &worker_queue(worker)).await
    }

    /// Claims a host program for this connection. Returns whether this connection has it.
    pub async fn claim_program(&self, job_id: JobId) -> Result<bool, QueueError> {
        topology::claim(&self.inner.link, &program_claim(job_id)).await
    }

    /// Gives up the claim of a host program. Cancelling is harmless.
    pub async fn release_program(&self, job_id: JobId) -> Result<(), QueueError> {
        self.delete_queue(&program_claim(job_id)).await
    }

    /// Notes on the broker that a host program has started. It can be repeated.
    pub async fn mark_program(&self, job_id: JobId) -> Result<(), QueueError> {
        topology::mark(&self.inner.link, &program_mark(job_id), PROGRAM_MARK_EXPIRES_MS).await
    }

    /// Returns whether a host program has started before.
    pub async fn is_program_marked(&self, job_id: JobId) -> Result<bool, QueueError> {
        Ok(self.queue_depth(&program_mark(job_id)).await?.is_some())
    }

    /// Takes up to `messages_max` messages out of a queue without becoming its consumer; none if the queue does not exist. If cancelled,
    /// the broker redelivers the messages that had arrived.
    pub async fn get(&self, queue: &str, messages_max: u16) -> Result<Vec<Delivery>, QueueError> {
        topology::get(&self.inner.link, queue, messages_max).await
    }

    /// The depth of a queue; `None` if it does not exist. Cancelling is harmless.
    pub async fn queue_depth(&self, queue: &str) -> Result<Option<QueueDepth>, QueueError> {
        topology::depth(&self.inner.link, queue).await
    }

    /// Deletes a queue with its messages; a missing queue is no error. If cancelled, the queue may or may not have been deleted.
    pub async fn delete_queue(&self, queue: &str) -> Result<(), QueueError> {
        topology::delete(&self.inner.link, queue).await
    }

    /// Publishes, and waits for the broker's confirm. Concurrent calls are pipelined. After a lost connection the message is sent again
    /// under the same message id, so a consumer may receive it twice. A caller that may publish a message again can share it without
    /// copying its body.
    ///
    /// If cancelled before the message leaves, it is not sent; after that it is sent, and its outcome stays unknown.
    pub async fn publish(&self, message: impl Into<Arc<Message>>) -> Result<(), PublishError> {
        self.inner.publisher.publish(message.into()).await
    }

    /// Checks that the user may publish to an exchange with a routing key. No queue gets a message. Cancelling is harmless.
    pub async fn check_publish(&self, exchange: &str, routing_key: &str) -> Result<(), PublishError> {
        rights::check_publish(&self.inner.link, exchange, routing_key).await
    }

    /// Publishes over a channel for events.
    pub(crate) async fn publish_events(&self, message: Message) -> Result<(), PublishError> {
        let publisher = self.inner.events.get_or_init(|| Publisher::of_events(&self.inner.link));
        publisher.publish(Arc::new(message)).await
    }

    /// Sends an order to the whole fleet, and resolves when it is in the log that every worker reads. The message carries `id`. The speaker
    /// decides what the order may request; the broker checks that the user may act as this speaker.
    /// If cancelled, the order may or may not have been sent.
    pub async fn order(&self, order: &Order, speaker: Speaker, id: MessageId) -> Result<(), PublishError> {
        self.publish(order::message(order, speaker, self.urls().user(), id)?).await
    }

    /// Consumes from a queue until stopped, through outages. `prefetch` bounds the unsettled deliveries; 0 counts as 1.
    pub fn consume(&self, queue: String, prefetch: u16) -> Consumer {
        self.consume_bounded(queue, prefetch, |_exchange| usize::MAX)
    }

    /// Consumes from a queue whose messages may be larger than the consumer can use.
    pub fn consume_bounded(&self, queue: String, prefetch: u16, kept: BodyBound) -> Consumer {
        Consumer::start(self.inner.link.clone(), queue, prefetch, Start::Queue { priority: 0 }, kept)
    }

    /// Consumes from a queue until stopped, and calls `pass` with each item as it comes. Without a channel in between, a delivery costs one
    /// task less than with [`Broker::consume`]. `pass` must not block. Of several subscribers the broker prefers the one with the highest
    /// `priority` until its prefetch is used up; 0 is the priority of all others.
    pub fn subscribe(
        &self,
        queue: String,
        prefetch: u16,
        priority: u16,
        pass: impl FnMut(Incoming) + Send + 'static,
    ) -> Subscription {
        Subscription::start(self.inner.link.clone(), queue, prefetch, Start::Queue { priority }, Box::new(pass))
    }

    /// Reads a stream from its first retained message. After an interruption it continues behind the last message that it read, or starts
    /// again if the stream was replaced. Messages stay in the stream for other readers; settling one only requests more.
    pub fn read(&self, stream: String, kept: BodyBound) -> Consumer {
        Consumer::start(self.inner.link.clone(), stream, READ_AHEAD, Start::Stream, kept)
    }

    pub(crate) fn confirm_deadline(&self) -> Duration {
        self.inner.link.options.confirm_deadline
    }

    /// Returns why the broker accepts no messages now; `None` if it accepts them.
    pub fn trouble(&self) -> Option<String> {
        self.inner.link.trouble()
    }

    /// Accepts no more messages, waits up to the confirm deadline for unconfirmed ones, and closes the connections. Flush an
    /// [`crate::EventSink`] first, because the events that it still holds are dropped.
    /// If cancelled, messages are still refused, and the connections close when the last clone is dropped.
    pub async fn close(&self) {
        let events = async {
            if let Some(events) = self.inner.events.get() {
                events.drain().await;
            }
        };
        tokio::join!(self.inner.publisher.drain(), events);
        self.inner.link.stop.cancel();
        let mut state = self.inner.link.state();
        let _supervisor_gone = state.wait_for(|state| *state == State::Closed).await;
    }
}
