//! The connection to a fleet.

use std::{sync::Arc, time::Duration};

use gpufleet_schema::{ClientName, Encoding, PoolName, Priority, Submitted, topology};
use gpufleet_transport::{
    BlobLocation, BlobStore, Broker, BrokerUrl, Consumer, DeclareError, Delivery, EventSink, Incoming,
    InvalidBlobLocation, Options, State,
};
use tokio::{sync::OnceCell, task::AbortHandle};
use tracing::{debug, warn};

use crate::{
    Array, ConnectError, Counts, Job, JobHandle, StoreError, StoredArray, SubmitError,
    error::PoolError,
    gathering::Gatherings,
    inbox::Inbox,
    submission::{self, Gathered, Submission},
    unreported::Reporter,
};

/// Unacknowledged replies that the broker may send ahead. Each reply is acknowledged as soon as it is copied, so the
/// bound costs no throughput. It limits the memory that a burst of 16 MiB replies can take.
const REPLIES_PREFETCH: u16 = 64;

/// A connection to a fleet. Clones share the connection, and the handles of open jobs keep it alive.
#[derive(Debug, Clone)]
pub struct Fleet {
    pub(crate) connection: Arc<Connection>,
}

/// The options of a connection to a fleet.
#[derive(Debug, Clone)]
pub struct FleetBuilder {
    client: Option<String>,
    wait_deadline: Duration,
    connect_deadline: Duration,
    confirm_deadline: Duration,
    user_id: bool,
    blobs: Option<Result<BlobLocation, InvalidBlobLocation>>,
}

/// The load of a pool's queues at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolDepth {
    /// Messages that the broker has not delivered to a worker yet. A message may carry several jobs.
    pub messages: u64,
    /// Workers that take jobs from the pool. With 0, jobs wait until a worker starts.
    pub consumers: u32,
}

#[derive(Debug)]
pub(crate) struct Connection {
    broker: Broker,
    client: ClientName,
    /// The client name was made for this connection, so no later connection asks for replies that this one missed.
    is_fresh: bool,
    inbox: Arc<Inbox>,
    gatherings: Gatherings<Gathered>,
    reporter: Reporter,
    wait_deadline: Duration,
    user_id: bool,
    blobs: Option<BlobStore>,
    /// The task that reads the reply queue. The first job starts it.
    replies: OnceCell<AbortHandle>,
}

impl Fleet {
    /// Connects with the default options and a new client name. [`Fleet::builder`] has all options.
    ///
    /// `url` is an AMQP URL such as `amqp://user:password@host:5672/vhost`. Cancelling the future gives up.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(url).await
    }

    /// The options of a connection, with their defaults.
    pub fn builder() -> FleetBuilder {
        FleetBuilder::default()
    }

    /// The client name: workers send the replies to the queue of this name.
    pub fn client(&self) -> &ClientName {
        &self.connection.client
    }

    /// Checks a job, sends it, and returns when the broker has it on disk.
    ///
    /// Short jobs that are submitted at the same time share messages. While one message is unconfirmed, later jobs for
    /// the same pool and priority gather, and the broker's confirm sends them. The run times in earlier replies decide
    /// how many jobs share a message.
    ///
    /// If the future is cancelled, the job may or may not run. Submitting the same [`Job`] again is harmless.
    pub async fn submit(&self, job: Job) -> Result<JobHandle, SubmitError> {
        Submission::prepare(&self.connection, job).await?.send(&self.connection).await
    }

    /// Submits many jobs. Small jobs of the same pool and priority share messages, and messages are pipelined.
    ///
    /// The results are in the order of the jobs, and one refused job does not affect the others. The iterator advances
    /// as messages are confirmed, so a lazy iterator keeps few jobs in memory. Jobs may start in any order.
    ///
    /// If the future is cancelled, any of the jobs may or may not run.
    pub async fn submit_many(&self, jobs: impl IntoIterator<Item = Job>) -> Vec<Result<JobHandle, SubmitError>> {
        submission::send_many(&self.connection, jobs).await
    }

    /// Stores an array in the blob store once, so that any number of jobs can use it through [`Job::input_stored`].
    ///
    /// The array stays there until `gpufleet blobs prune` deletes it. Storing it again resets its age.
    ///
    /// If the future is cancelled, the array may or may not be stored. That is harmless.
    pub async fn store(&self, array: Array) -> Result<StoredArray, StoreError> {
        StoredArray::put(array, self.connection.blobs().ok_or(StoreError::NoStore)?).await
    }

    /// The messages that wait in a pool and the workers that serve it. Both are 0 if no worker has served the pool yet.
    /// Jobs that wait in a queue of one device class are not counted. Cancelling the future is harmless.
    pub async fn pool_depth(&self, pool: &PoolName) -> Result<PoolDepth, PoolError> {
        let mut sum = PoolDepth::default();
        for priority in Priority::ALL {
            let queue = self.connection.broker.queue_depth(&topology::task_queue(pool, priority)).await?;
            if let Some(depth) = queue {
                sum.messages += u64::from(depth.messages);
                // A worker consumes from each of the pool's queues.
                sum.consumers = sum.consumers.max(depth.consumers);
            }
        }
        Ok(sum)
    }

    /// Resolves once the client can't publish, with the reason: the broker is unreachable, or blocks publishers because
    /// of an alarm. Meanwhile, calls of [`Fleet::submit`] wait until [`FleetBuilder::confirm_deadline`]. Cancelling the
    /// future is harmless.
    pub async fn held_up(&self) -> String {
        let broker = &self.connection.broker;
        let mut state = broker.state();
        loop {
            // An error would mean that the sender is gone, but the connection owns it.
            drop(state.wait_for(|state| *state != State::Connected).await);
            if let Some(trouble) = broker.trouble() {
                return trouble;
            }
        }
    }

    /// The replies that were counted since the connection was made.
    pub fn counts(&self) -> Counts {
        self.connection.inbox.counts()
    }

    /// Publishes the jobs that still gather, reports submissions to the ledger and closes the connection. Open waits
    /// end with [`JobError::Closed`](crate::JobError::Closed); their jobs still run. Every step has a deadline of its
    /// own.
    pub async fn close(&self) {
        submission::send_all_gathered(&self.connection).await;
        if let Err(error) = self.connection.reporter.finish().await {
            warn!(%error, "could not report submissions to the ledger; the workers' events will add them");
        }
        self.connection.stop_listening().await;
        self.connection.inbox.close();
        self.connection.broker.close().await;
    }
}

impl Default for FleetBuilder {
    fn default() -> Self {
        Self {
            client: None,
            wait_deadline: Self::WAIT_DEADLINE_DEFAULT,
            connect_deadline: Options::CONNECT_DEADLINE_DEFAULT,
            confirm_deadline: Options::CONFIRM_DEADLINE_DEFAULT,
            user_id: true,
            blobs: None,
        }
    }
}

impl FleetBuilder {
    /// Fifteen minutes: a job's default time limit of ten minutes, and five minutes in the queue.
    pub const WAIT_DEADLINE_DEFAULT: Duration = Duration::from_secs(15 * 60);
    /// One year: longer than any useful wait, and short enough that adding it to a clock's time does not overflow.
    pub const CONFIRM_DEADLINE_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

    /// Sets the client name, for programs that want a fixed one. It must be unique, because two connections with one
    /// name take each other's replies. Some users may only use names of their own (`gpufleet permissions`): the user's
    /// name, a dash, and a word without dashes.
    #[must_use]
    pub fn client(mut self, name: impl Into<String>) -> Self {
        self.client = Some(name.into());
        self
    }

    /// How long `handle.await` waits for a reply. The default is [`FleetBuilder::WAIT_DEADLINE_DEFAULT`].
    #[must_use]
    pub fn wait_deadline(mut self, deadline: Duration) -> Self {
        self.wait_deadline = deadline;
        self
    }

    /// How long connecting may take.
    #[must_use]
    pub fn connect_deadline(mut self, deadline: Duration) -> Self {
        self.connect_deadline = deadline;
        self
    }

    /// How long a message waits for the broker's confirm, including outages: at most
    /// [`FleetBuilder::CONFIRM_DEADLINE_MAX`]. A job that gathers with others first waits for the message before its
    /// own.
    #[must_use]
    pub fn confirm_deadline(mut self, deadline: Duration) -> Self {
        self.confirm_deadline = deadline.min(Self::CONFIRM_DEADLINE_MAX);
        self
    }

    /// Whether messages carry the URL's user in `user-id`; by default they do. The broker checks the name and the
    /// ledger records it. Turn it off if the broker knows the user by another name than the URL does, as with OAuth 2
    /// tokens: such a broker refuses the messages.
    #[must_use]
    pub fn user_id(mut self, carried: bool) -> Self {
        self.user_id = carried;
        self
    }

    /// The blob store, which the client shares with the workers: a folder, or a bucket as in
    /// `s3://bucket/prefix?endpoint=https://minio.example:9000`. Inputs and outputs of 1 MiB or more then go through the
    /// store, and messages carry only their digests. Without a store, a job with its inputs must fit into one message of
    /// 16 MiB, and so must its outputs. An unusable location is an error of [`FleetBuilder::connect`].
    #[must_use]
    pub fn blobs<L>(mut self, location: L) -> Self
    where
        L: TryInto<BlobLocation>,
        InvalidBlobLocation: From<L::Error>,
    {
        self.blobs = Some(location.try_into().map_err(InvalidBlobLocation::from));
        self
    }

    /// Connects to the broker at an AMQP URL. The first job declares the reply queue; workers declare everything else.
    /// Cancelling the future gives up.
    pub async fn connect(self, url: &str) -> Result<Fleet, ConnectError> {
        let url: BrokerUrl = url.parse()?;
        let is_fresh = self.client.is_none();
        let client: ClientName = match self.client {
            Some(name) => name.parse()?,
            None => ClientName::fresh(url.user()),
        };
        let blobs = match self.blobs {
            Some(location) => Some(BlobStore::open(location?).await?),
            None => None,
        };
        let user_id = self.user_id.then(|| url.user().to_owned());
        let options = Options {
            connect_deadline: self.connect_deadline,
            confirm_deadline: self.confirm_deadline,
            ..Options::new(url, format!("gpufleet {client}"))
        };
        let broker = Broker::connect(options).await?;
        let events = EventSink::of_client(broker.clone(), user_id);
        let inbox = Arc::new(Inbox::default());
        let reporter = Reporter::new(inbox.unreported().clone(), events, self.confirm_deadline);
        let connection = Connection {
            broker,
            client,
            is_fresh,
            inbox,
            gatherings: Gatherings::default(),
            reporter,
            wait_deadline: self.wait_deadline,
            user_id: self.user_id,
            blobs,
            replies: OnceCell::new(),
        };
        Ok(Fleet { connection: Arc::new(connection) })
    }
}

impl Connection {
    pub(crate) fn broker(&self) -> &Broker {
        &self.broker
    }

    pub(crate) fn client(&self) -> &ClientName {
        &self.client
    }

    /// The `user-id` of messages, which the broker checks.
    pub(crate) fn user_id(&self) -> Option<String> {
        self.user_id.then(|| self.broker.url().user().to_owned())
    }

    pub(crate) fn blobs(&self) -> Option<&BlobStore> {
        self.blobs.as_ref()
    }

    pub(crate) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    pub(crate) fn gatherings(&self) -> &Gatherings<Gathered> {
        &self.gatherings
    }

    pub(crate) fn wait_deadline(&self) -> Duration {
        self.wait_deadline
    }

    /// Declares the reply queue and subscribes to it, at the first call. A connection that submits nothing has no reply
    /// queue.
    pub(crate) async fn listen(&self) -> Result<(), DeclareError> {
        let listening = self.replies.get_or_try_init(async || {
            self.broker.declare_reply_queue(&self.client).await?;
            let consumer = self.broker.consume(topology::reply_queue(&self.client), REPLIES_PREFETCH);
            Ok(tokio::spawn(receive(consumer, self.inbox.clone())).abort_handle())
        });
        listening.await.map(drop)
    }

    /// Deletes the reply queue of a generated name, so that later replies go to the queue of unclaimed replies. The
    /// queue of a fixed name stays for ten minutes, in case the client connects again.
    async fn stop_listening(&self) {
        let Some(replies) = self.replies.get() else { return };
        replies.abort();
        if self.is_fresh
            && *self.broker.state().borrow() == State::Connected
            && let Err(error) = self.broker.delete_queue(&topology::reply_queue(&self.client)).await
        {
            debug!(%error, "could not delete the reply queue; it will expire");
        }
    }

    /// Reports confirmed jobs to the ledger unless they are answered soon. The handles of the jobs must still exist.
    pub(crate) async fn record(&self, submitted: Vec<Submitted>) {
        self.reporter.report_later(self.inbox.unanswered(submitted)).await;
    }

    /// Reports confirmed jobs to the ledger at once, because this client does not await their replies.
    pub(crate) async fn record_now(&self, submitted: impl IntoIterator<Item = Submitted>) {
        self.reporter.report(submitted).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reporter.report_rest();
        if let Some(replies) = self.replies.get() {
            replies.abort();
        }
    }
}

async fn receive(mut replies: Consumer, inbox: Arc<Inbox>) {
    while let Some(incoming) = replies.next().await {
        match incoming {
            Incoming::Delivery(delivery) => accept(delivery, &inbox).await,
            Incoming::Interrupted { reason } => warn!(reason, "reply subscription interrupted; subscribing again"),
        }
    }
    // No more replies can arrive, so every open wait ends.
    inbox.close();
}

async fn accept(delivery: Delivery, inbox: &Inbox) {
    let (body, properties, acker) = delivery.into_parts();
    let content_type = properties.content_type.as_deref().unwrap_or_default();
    match Encoding::of_content_type(content_type) {
        Some(encoding) => {
            if let Err(error) = inbox.deliver(encoding, properties.correlation_id.as_deref(), &body) {
                warn!(%error, "dropped an unreadable reply");
            }
        }
        None => {
            inbox.count_unreadable();
            warn!(content_type, "dropped a reply of unknown content type");
        }
    }
    // The broker redelivers an unacknowledged reply, and the inbox drops it because its job is answered.
    if let Err(error) = acker.ack().await {
        debug!(%error, "could not acknowledge a reply");
    }
}
