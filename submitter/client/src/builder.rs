//! The options of a connection to a fleet.

use std::{sync::Arc, time::Duration};

use gpufleet_blobs::{BlobLocation, BlobStore, InvalidBlobLocation};
use gpufleet_schema::{ClientName, MessageId};
#[cfg(feature = "traces")]
use gpufleet_telemetry::Traces;
use gpufleet_transport::{Broker, BrokerUrls, EventSink, GroupCommit, Options, ReplyQueue};
use tokio::sync::OnceCell;

#[cfg(feature = "ledger")]
use crate::recorded::ClientLedger;
use crate::{
    ConnectError, Fleet, connection::Connection, inbox::Inbox, progress::Received, spans::Spans, unreported::Reporter,
};

/// The options of a connection to a fleet.
#[derive(Debug, Clone)]
pub struct FleetBuilder {
    client: Option<String>,
    replies_kept: Duration,
    wait_deadline: Duration,
    connect_deadline: Duration,
    confirm_deadline: Duration,
    user_id: bool,
    affinity: bool,
    blobs: Option<Result<BlobLocation, InvalidBlobLocation>>,
    spans: Spans,
    #[cfg(feature = "ledger")]
    ledger: Option<String>,
}

impl Default for FleetBuilder {
    fn default() -> Self {
        Self {
            client: None,
            replies_kept: Self::REPLIES_KEPT_DEFAULT,
            wait_deadline: Self::WAIT_DEADLINE_DEFAULT,
            connect_deadline: Options::CONNECT_DEADLINE_DEFAULT,
            confirm_deadline: Options::CONFIRM_DEADLINE_DEFAULT,
            user_id: true,
            affinity: false,
            blobs: None,
            spans: Spans::default(),
            #[cfg(feature = "ledger")]
            ledger: None,
        }
    }
}

impl FleetBuilder {
    /// Default of [`FleetBuilder::wait_deadline`]: 15 minutes, which is a job's default time limit of 10 minutes and 5 minutes in the
    /// queue.
    pub const WAIT_DEADLINE_DEFAULT: Duration = Duration::from_secs(15 * 60);
    /// Default of [`FleetBuilder::keep_replies`]: one week, so that a nightly program finds the replies of several nights.
    pub const REPLIES_KEPT_DEFAULT: Duration = Duration::from_secs(7 * 24 * 3600);
    /// Maximum of [`FleetBuilder::keep_replies`]: 30 days. RabbitMQ accepts at most 49.
    pub const REPLIES_KEPT_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
    /// Maximum of [`FleetBuilder::confirm_deadline`]: one year, which is longer than any useful wait and short enough that adding it to a
    /// clock's time does not overflow.
    pub const CONFIRM_DEADLINE_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

    /// Gives the client a name of its own, under which a later connection gets the replies that this one does not take:
    /// [`Fleet::attach`].
    ///
    /// The broker keeps a reply until the program takes the result, and for [`FleetBuilder::keep_replies`] at the most.
    /// With a blob store, jobs keep their outputs as long ([`Job::keep`](crate::Job::keep)), because replies name blobs. Each job and
    /// each reply has a message of its own, so very short jobs run slower than without a name.
    ///
    /// The name is that of the broker's user, a dash, and a word without dashes, such as `anna-nightly`: workers reply only to
    /// clients of the user who submitted a job. One connection at a time can use it; for a second one, connecting fails.
    #[must_use]
    pub fn client(mut self, name: impl Into<String>) -> Self {
        self.client = Some(name.into());
        self
    }

    /// Sets how long the broker keeps the replies of a client with a name of its own: at most [`FleetBuilder::REPLIES_KEPT_MAX`]. The
    /// default is [`FleetBuilder::REPLIES_KEPT_DEFAULT`]. Every connection with the name must set the same time, because it belongs to the
    /// queue.
    #[must_use]
    pub fn keep_replies(mut self, time: Duration) -> Self {
        self.replies_kept = time.clamp(Duration::from_millis(1), Self::REPLIES_KEPT_MAX);
        self
    }

    /// Sets how long `handle.await` waits for a reply. The default is [`FleetBuilder::WAIT_DEADLINE_DEFAULT`].
    #[must_use]
    pub fn wait_deadline(mut self, deadline: Duration) -> Self {
        self.wait_deadline = deadline;
        self
    }

    /// Sets how long connecting to one node may take. The default is 10 s.
    #[must_use]
    pub fn connect_deadline(mut self, deadline: Duration) -> Self {
        self.connect_deadline = deadline;
        self
    }

    /// Sets how long a message waits for the broker's confirm, including outages: at most [`FleetBuilder::CONFIRM_DEADLINE_MAX`]. The
    /// default is 60 s. A job that gathers with others first waits for the message before its own.
    #[must_use]
    pub fn confirm_deadline(mut self, deadline: Duration) -> Self {
        self.confirm_deadline = deadline.min(Self::CONFIRM_DEADLINE_MAX);
        self
    }

    /// Sets whether messages carry the URL's user in `user-id`; by default they do. The broker checks the name and the ledger records it.
    /// Turn it off if the broker knows the user by another name than the URL does, as with OAuth 2 tokens: such a broker refuses the
    /// messages.
    #[must_use]
    pub fn user_id(mut self, carried: bool) -> Self {
        self.user_id = carried;
        self
    }

    /// Sets whether jobs prefer a worker that has their largest input on a device, if that input is in the blob store; by default they
    /// don't. The workers of their pools must offer it (`--pool POOL:affinity`), otherwise such a job is refused
    /// ([`SubmitError::NoSlots`](crate::SubmitError::NoSlots)). It pays off if many jobs share inputs that do not all fit on one device.
    #[must_use]
    pub fn affinity(mut self, preferred: bool) -> Self {
        self.affinity = preferred;
        self
    }

    /// Sets the blob store, which the client shares with the workers: a folder, or a bucket such as
    /// `s3://bucket/prefix?endpoint=https://minio.example:9000`. Inputs and outputs of 1 MiB or more then go through the store, and
    /// messages carry only their digests. Without a store, a job with its inputs must fit into one message of 16 MiB, and so must its
    /// outputs. An unusable location is an error of [`FleetBuilder::connect`].
    #[must_use]
    pub fn blobs<L>(mut self, location: L) -> Self
    where
        L: TryInto<BlobLocation>,
        InvalidBlobLocation: From<L::Error>,
    {
        self.blobs = Some(location.try_into().map_err(InvalidBlobLocation::from));
        self
    }

    /// Sets the URL of the ledger's database, such as `postgres://user:password@host:5432/gpufleet`. [`Fleet::result`] and
    /// [`Fleet::attach`] read finished jobs there, and jobs can take kept outputs of other jobs
    /// ([`Job::input_from`](crate::Job::input_from)). The client connects to the database when one of these first needs it; submitting
    /// needs only the broker.
    #[cfg(feature = "ledger")]
    #[must_use]
    pub fn ledger(mut self, url: impl Into<String>) -> Self {
        self.ledger = Some(url.into());
        self
    }

    /// Exports a span for each submission. Workers and the recorder record theirs below it, if they are traced too.
    /// [`Traces::from_environment`] reads the standard variables. Without traces, jobs still carry the span that
    /// [`Job::traceparent`](crate::Job::traceparent) names.
    #[cfg(feature = "traces")]
    #[must_use]
    pub fn traces(mut self, traces: Option<Traces>) -> Self {
        self.spans.traces = traces;
        self
    }

    /// Connects to the broker at an AMQP URL, or at one of several URLs for the nodes of a cluster, separated by commas:
    /// `amqp://user:password@a/vhost,amqp://user:password@b/vhost`. With several URLs, the client connects to another node when its node
    /// fails, and RabbitMQ replicates its reply queue. Workers declare all queues but the reply queue. A client with a name of its own
    /// declares it here, any other client with its first job. Cancelling the future gives up.
    pub async fn connect(self, urls: &str) -> Result<Fleet, ConnectError> {
        let urls: BrokerUrls = urls.parse()?;
        let replies_kept = self.client.is_some().then_some(self.replies_kept);
        let client: ClientName = match self.client {
            Some(name) => name.parse()?,
            None => ClientName::fresh(urls.user()),
        };
        if self.user_id && !client.belongs_to(urls.user()) {
            return Err(ConnectError::ForeignName { client, user: urls.user().to_owned() });
        }
        let blobs = match self.blobs {
            Some(location) => Some(Box::pin(BlobStore::open(location?)).await?),
            None => None,
        };
        #[cfg(feature = "ledger")]
        let ledger = self.ledger.map(|url| url.parse()).transpose()?.map(ClientLedger::new);
        let user_id = self.user_id.then(|| urls.user().to_owned());
        let options = Options {
            connect_deadline: self.connect_deadline,
            confirm_deadline: self.confirm_deadline,
            reply_queue: replies_kept.map_or(ReplyQueue::Brief, ReplyQueue::Kept),
            ..Options::new(urls, format!("gpufleet {client}"))
        };
        let broker = Broker::connect(options).await?;
        let events = EventSink::of_client(broker.clone(), user_id);
        let inbox = Arc::new(if replies_kept.is_some() { Inbox::with_unread() } else { Inbox::default() });
        let reporter = Reporter::new(inbox.unreported().clone(), events, self.confirm_deadline);
        let connection = Connection {
            broker,
            client,
            replies_kept,
            reply_token: replies_kept.is_none().then(|| MessageId::new().to_string()),
            inbox,
            packets: GroupCommit::default(),
            reporter,
            wait_deadline: self.wait_deadline,
            user_id: self.user_id,
            affinity: self.affinity,
            blobs,
            spans: self.spans,
            progress: Received::default(),
            #[cfg(feature = "ledger")]
            ledger,
            replies: OnceCell::new(),
        };
        let fleet = Fleet { connection: Arc::new(connection) };
        if replies_kept.is_some()
            && let Err(error) = Box::pin(fleet.connection.claim_name(self.connect_deadline)).await
        {
            Box::pin(fleet.close()).await;
            return Err(error);
        }
        Ok(fleet)
    }
}
