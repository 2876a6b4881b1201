//! The connection behind a fleet: the broker, the reply queue, and what its jobs share.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use gpufleet_blobs::BlobStore;
use gpufleet_schema::{ClientName, Encoding, JobId, SessionOffer, Submitted, topology};
use gpufleet_transport::{Broker, Consumer, DeclareError, Delivery, GroupCommit, Incoming, QueueError, State};
use tokio::{sync::OnceCell, time::sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use crate::{
    ConnectError, JobError, JobResult, UnreadOutput, destination::Destination, inbox::Inbox, packing::Packet,
    progress::Received, spans::Spans, submission::GatheredJob, unreported::Reporter,
};
#[cfg(feature = "ledger")]
use crate::{
    Job, ResultError, SubmitError,
    recorded::{self, ClientLedger},
};

/// Unacknowledged replies that the broker may send ahead. Each reply is acknowledged as soon as it is copied, so the
/// bound costs no throughput. It limits the memory that a burst of 16 MiB replies can take.
const REPLIES_PREFETCH: u16 = 64;
/// Unacknowledged replies that the broker may send to a client with a name of its own. Such replies are acknowledged when the program takes
/// the results, in any order, so a smaller bound could hold back the reply that the program waits for. A reply that no handle waits for
/// takes some hundred bytes of memory, because its body is dropped.
const UNREAD_PREFETCH: u16 = u16::MAX;
/// Time between checks whether an earlier connection with the client's name has ended.
const NAME_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) broker: Broker,
    pub(crate) client: ClientName,
    /// For how long the broker keeps replies that were not taken. None if the name was made for this connection, so that
    /// no later connection asks for them.
    pub(crate) replies_kept: Option<Duration>,
    /// The secret that replies must carry. None for a client with a name of its own, whose earlier connections had other secrets.
    pub(crate) reply_token: Option<String>,
    pub(crate) inbox: Arc<Inbox>,
    /// The jobs that are submitted one by one and gather while a message to their queue is unconfirmed.
    pub(crate) packets: GroupCommit<Destination, Packet<GatheredJob>>,
    pub(crate) reporter: Reporter,
    pub(crate) wait_deadline: Duration,
    pub(crate) user_id: bool,
    pub(crate) affinity: bool,
    pub(crate) blobs: Option<BlobStore>,
    pub(crate) spans: Spans,
    pub(crate) progress: Received,
    #[cfg(feature = "ledger")]
    pub(crate) ledger: Option<ClientLedger>,
    /// The task that reads the reply queue. The first job starts it.
    pub(crate) replies: OnceCell<Receiving>,
}

/// The task that reads the reply queue.
#[derive(Debug)]
pub(crate) struct Receiving {
    stop: CancellationToken,
    tasks: TaskTracker,
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
        self.user_id.then(|| self.broker.urls().user().to_owned())
    }

    /// Whether jobs with large inputs go to the affinity slots of their pool.
    pub(crate) fn uses_affinity(&self) -> bool {
        self.affinity
    }

    pub(crate) fn blobs(&self) -> Option<&BlobStore> {
        self.blobs.as_ref()
    }

    pub(crate) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// For how long the broker keeps replies, if the client has a name of its own.
    pub(crate) fn replies_kept(&self) -> Option<Duration> {
        self.replies_kept
    }

    #[cfg(feature = "ledger")]
    pub(crate) fn ledger(&self) -> Option<&ClientLedger> {
        self.ledger.as_ref()
    }

    pub(crate) fn has_ledger(&self) -> bool {
        #[cfg(feature = "ledger")]
        return self.ledger.is_some();
        #[cfg(not(feature = "ledger"))]
        false
    }

    /// Looks up the outputs of other jobs that the job takes as inputs.
    #[cfg(feature = "ledger")]
    pub(crate) async fn chained(&self, job: Job) -> Result<Job, SubmitError> {
        let ledger = self.ledger().ok_or(ResultError::NoLedger)?.get().await.map_err(ResultError::from)?;
        Ok(job.chained(ledger).await?)
    }

    /// Waits until the ledger has the result of a job whose reply is late. Never resolves without a ledger.
    pub(crate) async fn recorded_result(
        &self,
        job_id: JobId,
        since: Instant,
    ) -> Result<JobResult<UnreadOutput>, JobError> {
        #[cfg(feature = "ledger")]
        if let Some(ledger) = self.ledger() {
            return Box::pin(recorded::result(job_id, ledger, self.blobs(), since)).await;
        }
        let (_job_id, _since) = (job_id, since);
        std::future::pending().await
    }

    pub(crate) fn wait_deadline(&self) -> Duration {
        self.wait_deadline
    }

    /// Declares the reply queue and subscribes to it, at the first call. A connection that submits nothing has no reply
    /// queue.
    pub(crate) async fn listen(&self) -> Result<(), DeclareError> {
        let listening = self.replies.get_or_try_init(async || {
            self.broker.declare_reply_queue(&self.client).await?;
            let prefetch = if self.replies_kept.is_some() { UNREAD_PREFETCH } else { REPLIES_PREFETCH };
            let consumer = self.broker.consume(topology::reply_queue(&self.client), prefetch);
            Ok(Receiving::start(consumer, self.inbox.clone(), self.reply_token.clone()))
        });
        listening.await.map(drop)
    }

    /// Subscribes to the replies under the client's own name, unless another connection has done so. A connection that has just ended may
    /// still count for a moment. If two connections subscribe at the same moment, the broker sends the replies to one of them.
    pub(crate) async fn claim_name(&self, deadline: Duration) -> Result<(), ConnectError> {
        let queue = topology::reply_queue(&self.client);
        let begun = Instant::now();
        while self.broker.queue_depth(&queue).await?.is_some_and(|depth| depth.consumers > 0) {
            if begun.elapsed() >= deadline {
                return Err(ConnectError::NameInUse { client: self.client.clone() });
            }
            sleep(NAME_PAUSE).await;
        }
        Ok(self.listen().await?)
    }

    /// Deletes the client's own reply queue. Its subscription ends first, because a quorum queue that is deleted at the
    /// same time may confirm the end twice, and lapin then closes the connection.
    pub(crate) async fn delete_replies(&self) -> Result<(), QueueError> {
        if let Some(replies) = self.replies.get() {
            replies.stop().await;
        }
        self.broker.delete_queue(&topology::reply_queue(&self.client)).await
    }

    /// Deletes the reply queue of a generated name, so that later replies go to the queue of unclaimed replies. The
    /// queue of a client with a name of its own stays, in case the client connects again.
    async fn stop_listening(&self) {
        if self.replies.initialized()
            && self.replies_kept.is_none()
            && *self.broker.state().borrow() == State::Connected
            && let Err(error) = self.delete_replies().await
        {
            debug!(%error, "could not delete the reply queue; it will expire");
        }
    }

    /// Reports submissions to the ledger, ends open waits and closes the connection.
    pub(crate) async fn close(&self) {
        if let Err(error) = self.reporter.finish().await {
            warn!(%error, "could not report submissions to the ledger; the workers' events will add them");
        }
        self.stop_listening().await;
        self.inbox.close();
        #[cfg(feature = "ledger")]
        if let Some(ledger) = &self.ledger {
            ledger.close().await;
        }
        tokio::join!(self.broker.close(), self.spans.flush());
    }

    /// Reports confirmed jobs to the ledger unless they are answered soon. The handles of the jobs must still exist.
    pub(crate) async fn record(&self, submitted: Vec<Submitted>) {
        self.reporter.report_later(self.inbox.unanswered(submitted)).await;
    }

    /// Reports confirmed jobs to the ledger at once, because this client does not await their replies.
    pub(crate) async fn record_now(&self, submitted: impl IntoIterator<Item = Submitted>) {
        self.reporter.report_promptly(submitted.into_iter().collect()).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reporter.report_rest();
    }
}

impl Receiving {
    fn start(mut replies: Consumer, inbox: Arc<Inbox>, token: Option<String>) -> Self {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let stopped = stop.clone();
        tasks.spawn(async move {
            if stopped.run_until_cancelled(receive(&mut replies, &inbox, token.as_deref())).await.is_none() {
                replies.stop().await;
            }
        });
        tasks.close();
        Self { stop, tasks }
    }

    /// Resolves when the broker sends no more replies. If cancelled, the subscription still ends.
    async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn receive(replies: &mut Consumer, inbox: &Inbox, token: Option<&str>) {
    while let Some(incoming) = replies.next().await {
        match incoming {
            Incoming::Delivery(delivery) => accept(delivery, inbox, token).await,
            Incoming::Interrupted { reason } => warn!(reason, "reply subscription interrupted; subscribing again"),
        }
    }
    // No more replies can arrive, so every open wait ends.
    inbox.close();
}

async fn accept(delivery: Delivery, inbox: &Inbox, token: Option<&str>) {
    let (body, properties, acker) = delivery.into_parts();
    let content_type = properties.content_type.as_deref().unwrap_or_default();
    let single = match Encoding::of_content_type(content_type) {
        _ if token.is_some() && properties.header_text(topology::HEADER_REPLY_TOKEN) != token => {
            inbox.count_unreadable();
            warn!("dropped a reply without this client's token: another user submitted a task that names this client");
            None
        }
        _ if properties.kind.as_deref() == Some(topology::TYPE_OFFER) => {
            offer(&body, inbox);
            None
        }
        Some(encoding) => {
            let delivered = inbox.deliver(encoding, properties.correlation_id.as_deref(), &body);
            delivered.inspect_err(|error| warn!(%error, "dropped an unreadable reply")).unwrap_or_default()
        }
        None => {
            inbox.count_unreadable();
            warn!(content_type, "dropped a reply of unknown content type");
            None
        }
    };
    inbox.settle(single, acker).await;
}

/// Hands the offer of a session to the handle of its job.
fn offer(body: &[u8], inbox: &Inbox) {
    match SessionOffer::decode(body) {
        Ok(offer) => inbox.offers().deliver(offer),
        Err(error) => {
            inbox.count_unreadable();
            warn!(%error, "dropped an unreadable offer of a session");
        }
    }
}
