//! Waits for the result of a job.

use std::{
    future::IntoFuture,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use gpufleet_schema::JobId;

use crate::{
    JobError, JobResult, UnreadOutput, connection::Connection, inbox::PendingReply, output,
    pending_result::PendingResult,
};

/// A job that the broker has confirmed. Await the handle, or call [`JobHandle::wait`] with a deadline of your own.
///
/// Dropping the handle does not cancel the job. The job runs, the ledger records its outcome, and the client drops its
/// reply. If the client has a name of its own, the reply stays with the broker for [`Fleet::attach`](crate::Fleet::attach).
#[derive(Debug)]
pub struct JobHandle {
    pending: PendingResult,
    /// The job was submitted earlier, so that its result may also come from the ledger.
    is_attached: bool,
    /// Keeps the connection open as long as the handle exists.
    connection: Arc<Connection>,
}

impl JobHandle {
    pub(crate) fn new(awaited: PendingReply, connection: Arc<Connection>, submitted: Instant) -> Self {
        Self { pending: PendingResult::new(awaited, submitted), is_attached: false, connection }
    }

    /// Creates a handle for a job that was submitted earlier.
    pub(crate) fn attached(awaited: PendingReply, connection: Arc<Connection>, since: Instant) -> Self {
        Self { is_attached: true, ..Self::new(awaited, connection, since) }
    }

    pub fn id(&self) -> JobId {
        self.pending.job_id()
    }

    /// Waits for the reply, and reads the outputs that are in the blob store, until `deadline` has passed.
    ///
    /// Call it again after [`JobError::DeadlinePassed`], or after [`JobError::BadReply`] once the store is repaired.
    /// After any other outcome, further calls return [`JobError::Closed`], because a job has one reply.
    ///
    /// Cancelling the future loses nothing: the next call returns a reply that arrived in between.
    pub async fn wait(&mut self, deadline: Duration) -> Result<JobResult, JobError> {
        let job_id = self.id();
        match tokio::time::timeout(deadline, self.result()).await {
            Err(_) => Err(JobError::DeadlinePassed { job_id, waited: deadline }),
            Ok(result) => result,
        }
    }

    /// Waits for the reply until `deadline` has passed, and leaves large outputs in the blob store. The errors are those of
    /// [`JobHandle::wait`]. Read the outputs with [`Fleet::read_stored`](crate::Fleet::read_stored), or write them to files with
    /// [`Fleet::copy_stored`](crate::Fleet::copy_stored), which takes little memory.
    ///
    /// The outputs stay in the store until `gpufleet blobs prune` deletes them: two days after the job, unless it [keeps](crate::Job::keep)
    /// its outputs longer.
    pub async fn wait_unread(&mut self, deadline: Duration) -> Result<JobResult<UnreadOutput>, JobError> {
        let job_id = self.id();
        let unread = async {
            match self.recorded(async |result| Ok(result)).await? {
                Some(result) => Ok(result),
                None => self.pending.unread().await,
            }
        };
        match tokio::time::timeout(deadline, unread).await {
            Err(_) => Err(JobError::DeadlinePassed { job_id, waited: deadline }),
            Ok(result) => result,
        }
    }

    /// Waits for the reply without a deadline. [`JobHandle::wait`] then returns at once, unless it reads large outputs.
    ///
    /// This future takes a tenth of the memory of `wait`, for programs that wait for very many jobs at a time. It does not query the
    /// ledger. Cancelling it loses nothing.
    pub async fn arrived(&mut self) -> Result<(), JobError> {
        self.pending.arrive().await
    }

    async fn result(&mut self) -> Result<JobResult, JobError> {
        let connection = self.connection.clone();
        match self.recorded(async |result| output::read_all(result, connection.blobs()).await).await? {
            Some(result) => Ok(result),
            None => self.pending.result(connection.blobs()).await,
        }
    }

    /// Waits until the ledger has the result of an attached job, and passes it through `read`. None if the reply arrives first, or if the
    /// job was not attached.
    async fn recorded<T>(
        &mut self,
        read: impl AsyncFnOnce(JobResult<UnreadOutput>) -> Result<T, JobError>,
    ) -> Result<Option<T>, JobError> {
        if !self.is_attached {
            return Ok(None);
        }
        let (job_id, since) = (self.id(), self.pending.since());
        let recorded = async { read(self.connection.recorded_result(job_id, since).await?).await };
        tokio::select! {
            biased;
            arrived = self.pending.arrive() => arrived.map(|()| None),
            result = recorded => {
                self.pending.end().await;
                result.map(Some)
            }
        }
    }
}

/// Waits up to the deadline that [`FleetBuilder::wait_deadline`](crate::FleetBuilder::wait_deadline) sets.
impl IntoFuture for JobHandle {
    type Output = Result<JobResult, JobError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move {
            let deadline = self.connection.wait_deadline();
            self.wait(deadline).await
        })
    }
}
