//! The connection to a fleet.

use std::{path::PathBuf, sync::Arc, time::Duration};

use gpufleet_schema::{ClientName, Encoding, PoolName, Priority, Submitted, topology};
use gpufleet_transport::{
    BlobStore, Broker, BrokerUrl, Consumer, DeclareError, Delivery, EventSink, Incoming, Options, State,
};
use tokio::{sync::OnceCell, task::AbortHandle};
use tracing::{debug, warn};

use crate::{
    Array, ConnectError, Counts, Job, JobHandle, StoreError, StoredArray, SubmitError,
    error::PoolError,
    gathering::Gatherings,
    inbox::Inbox,
    submission::{self, Gathered, Submission},
    unreported::Reports,
};

/// Replies that may wait undispatched in this process. Each is acknowledged as soon as it is copied out, so the bound costs no
/// throughput; it keeps a burst of 16 MiB replies from filling the memory.
const REPLIES_PREFETCH: u16 = 64;

/// A connection to a fleet. Clones share it, and handles of open jobs keep it alive.
#[derive(Debug, Clone)]
pub struct Fleet {
    pub(crate) connection: Arc<Connection>,
}

/// What a fleet is reached by.
#[derive(Debug, Clone)]
pub struct FleetBuilder {
    client: Option<String>,
    wait_deadline: Duration,
    connect_deadline: Duration,
    confirm_deadline: Duration,
    user_id: bool,
    blobs: Option<PathBuf>,
}

/// What a pool's queues hold at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolDepth {
    /// Messages that no worker has taken yet. A message may carry several jobs.
    pub messages: u64,
    /// Workers that take jobs from the pool. None: jobs wait until one comes.
    pub consumers: u32,
}

#[derive(Debug)]
pub(crate) struct Connection {
    broker: Broker,
    client: ClientName,
    /// Nobody else has the name, so nobody comes back for replies that it missed.
    is_fresh: bool,
    inbox: Arc<Inbox>,
    gatherings: Gatherings<Gathered>,
    reports: Reports,
    wait_deadline: Duration,
    user_id: bool,
    blobs: Option<BlobStore>,
    /// Reads the reply queue, from the first job on.
    replies: OnceCell<AbortHandle>,
}

impl Fleet {
    /// Connects under a client name of its own. See [`Fleet::builder`] for everything that can be chosen.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(url).await
    }

    pub fn builder() -> FleetBuilder {
        FleetBuilder::default()
    }

    /// The name that replies come to.
    pub fn client(&self) -> &ClientName {
        &self.connection.client
    }

    /// Checks a job, sends it, and returns when the broker has it on disk.
    ///
    /// Short jobs that are submitted at the same time share messages: while one message is unconfirmed, later jobs for the same pool and
    /// priority gather and leave with its confirmation. How many share one depends on their run times, as earlier replies gave them.
    ///
    /// Cancelling before the return leaves it open whether the job runs; submitting the same [`Job`] again is harmless.
    pub async fn submit(&self, job: Job) -> Result<JobHandle, SubmitError> {
        Submission::prepare(&self.connection, job).await?.send(&self.connection).await
    }

    /// Submits many jobs at once: small ones of the same pool and priority share messages, and messages are pipelined. The
    /// results stand in the order of the jobs; one that fails leaves the others alone. Jobs are taken from the iterator as messages
    /// are confirmed, so one that makes them as it goes holds few at a time. They start in any order.
    ///
    /// Cancelling leaves it open which of the jobs run.
    pub async fn submit_many(&self, jobs: impl IntoIterator<Item = Job>) -> Vec<Result<JobHandle, SubmitError>> {
        submission::send_many(&self.connection, jobs).await
    }

    /// Puts an array into the blob store, for jobs to take it by [`Job::input_stored`]: once, however many there are.
    ///
    /// It stays there until somebody prunes the store (`gpufleet blobs prune`). To store it again makes it as good as new.
    ///
    /// Cancelling leaves it open whether it is there.
    pub async fn store(&self, array: Array) -> Result<StoredArray, StoreError> {
        StoredArray::put(array, self.connection.blobs().ok_or(StoreError::NoStore)?).await
    }

    /// What waits in a pool and how many workers serve it: zeros if no worker has served it yet. Jobs that one worker has forwarded to
    /// another kind of device are not counted.
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

    /// Resolves with what it is, once something keeps jobs from going out: the broker takes no messages, or can't be reached. Jobs that are
    /// being submitted wait for it, as long as they are told to. Cancelling is harmless.
    pub async fn held_up(&self) -> String {
        let broker = &self.connection.broker;
        let mut state = broker.state();
        loop {
            // The connection has the other end.
            drop(state.wait_for(|state| *state != State::Connected).await);
            if let Some(trouble) = broker.trouble() {
                return trouble;
            }
        }
    }

    /// What was counted since the connection was made.
    pub fn counts(&self) -> Counts {
        self.connection.inbox.counts()
    }

    /// Sends what is left to send and closes the connection. Waits that are still open end with
    /// [`JobError::Closed`](crate::JobError::Closed); their jobs go on. Every step has a deadline of its own.
    pub async fn close(&self) {
        submission::send_all_gathered(&self.connection).await;
        if let Err(error) = self.connection.reports.finish().await {
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
    /// A job's default time limit is ten minutes; five more for the queue.
    pub const WAIT_DEADLINE_DEFAULT: Duration = Duration::from_secs(15 * 60);
    /// Longer than anybody waits, and within what every clock can hold.
    pub const CONFIRM_DEADLINE_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

    /// The client's name on the replies exchange, for producers that want a fixed one. Two connections with one name take each
    /// other's replies, so give one only where it is unique. A user whom RabbitMQ confines to names of its own (`gpufleet permissions`)
    /// needs one of these: the user's name, a dash, and a word without dashes.
    #[must_use]
    pub fn client(mut self, name: impl Into<String>) -> Self {
        self.client = Some(name.into());
        self
    }

    /// How long `handle.await` waits for a reply.
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

    /// How long a message waits for the broker's confirmation, outages in between included: at most a year. A job that gathers with others
    /// waits for the message before its own, too.
    #[must_use]
    pub fn confirm_deadline(mut self, deadline: Duration) -> Self {
        self.confirm_deadline = deadline.min(Self::CONFIRM_DEADLINE_MAX);
        self
    }

    /// Whether jobs carry the URL's user, for whom the broker then vouches and whom the ledger records; they do unless told otherwise. A
    /// broker that knows its users by another name than the URL's, as with OAuth 2 tokens, refuses such jobs.
    #[must_use]
    pub fn user_id(mut self, carried: bool) -> Self {
        self.user_id = carried;
        self
    }

    /// The folder of the blob store, which the workers see as well. Arrays from 1 MiB on, into jobs and out of them, then wait there, and
    /// messages only name them. Without it a job with its arrays has to fit into a message of 16 MiB, and so have its outputs.
    #[must_use]
    pub fn blobs(mut self, folder: impl Into<PathBuf>) -> Self {
        self.blobs = Some(folder.into());
        self
    }

    /// Connects. Nothing is declared before the first job is submitted, and then only a queue for replies: workers declare the rest.
    /// Cancelling gives up.
    pub async fn connect(self, url: &str) -> Result<Fleet, ConnectError> {
        let url: BrokerUrl = url.parse()?;
        let is_fresh = self.client.is_none();
        let client: ClientName = match self.client {
            Some(name) => name.parse()?,
            None => ClientName::fresh(url.user()),
        };
        let blobs = match self.blobs {
            Some(folder) => Some(BlobStore::open(folder).await?),
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
        let reports = Reports::new(inbox.unreported().clone(), events, self.confirm_deadline);
        let connection = Connection {
            broker,
            client,
            is_fresh,
            inbox,
            gatherings: Gatherings::default(),
            reports,
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

    /// What jobs carry for the broker to vouch for.
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

    /// Makes the reply queue, once. A connection that submits nothing leaves none behind.
    pub(crate) async fn listen(&self) -> Result<(), DeclareError> {
        let listening = self.replies.get_or_try_init(async || {
            self.broker.declare_reply_queue(&self.client).await?;
            let consumer = self.broker.consume(topology::reply_queue(&self.client), REPLIES_PREFETCH);
            Ok(tokio::spawn(receive(consumer, self.inbox.clone())).abort_handle())
        });
        listening.await.map(drop)
    }

    /// Later replies go to the queue of unclaimed ones. The queue of a name that was given stays for ten minutes, for whoever comes back
    /// under it.
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

    /// Tells the ledger of confirmed jobs that are not answered soon. Their replies are awaited by handles that exist.
    pub(crate) async fn record(&self, submitted: Vec<Submitted>) {
        self.reports.tell_later(self.inbox.unanswered(submitted)).await;
    }

    /// Tells the ledger of confirmed jobs whose replies are not awaited here.
    pub(crate) async fn record_now(&self, submitted: impl IntoIterator<Item = Submitted>) {
        self.reports.tell(submitted).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reports.tell_rest();
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
    // Nothing can come any more, so nobody should go on waiting.
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
    // An unacknowledged reply comes again and is dropped then, as its job is answered.
    if let Err(error) = acker.ack().await {
        debug!(%error, "could not acknowledge a reply");
    }
}
