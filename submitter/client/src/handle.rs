//! Waits for the result of a job.

use std::{
    future::IntoFuture,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use gpufleet_schema::{AttemptState, Failure, JobId, PrintfOutput, RanOn, Timings};

use crate::{
    Array, ArrayError, Element, UnreadOutput, connection::Connection, inbox::PendingReply, output,
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

/// The outputs of a job that succeeded, and what the worker measured. `O` is [`UnreadOutput`] for outputs that may still be in the
/// blob store ([`JobHandle::wait_unread`]).
#[derive(Debug, Clone, PartialEq)]
pub struct JobResult<O = Array> {
    pub job_id: JobId,
    /// Always [`AttemptState::Succeeded`].
    pub state: AttemptState,
    /// The number of the attempt that succeeded, from 1.
    pub attempt: u32,
    pub timings: Timings,
    /// The worker and device that ran the job.
    pub ran_on: Option<RanOn>,
    /// The text that the kernels printed; `None` if they printed nothing.
    pub printf_output: Option<PrintfOutput>,
    /// Time from the call of `submit` to the arrival of the reply, by this process's clock.
    pub round_trip: Duration,
    /// The outputs by name, in the order in which the job lists them.
    pub outputs: Vec<(String, O)>,
}

/// The final outcome of a job that did not succeed.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedJob {
    pub job_id: JobId,
    /// How the job ended, such as failed, expired, cancelled or dead.
    pub state: AttemptState,
    /// The number of the last attempt, from 1.
    pub attempt: u32,
    pub failure: Option<Failure>,
    pub timings: Timings,
    /// The worker and device that ran the job.
    pub ran_on: Option<RanOn>,
    /// The text that the kernels printed before the job ended.
    pub printf_output: Option<PrintfOutput>,
    /// Time from the call of `submit` to the arrival of the reply, by this process's clock.
    pub round_trip: Duration,
}

impl FailedJob {
    /// Returns how the job ended, in words for a message: `failed`, `expired`, `was cancelled` or `was dead-lettered`.
    pub fn ended(&self) -> &str {
        match &self.state {
            AttemptState::Cancelled => "was cancelled",
            AttemptState::Dead => "was dead-lettered",
            other => other.name(),
        }
    }
}

/// Why a wait ended without a result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum JobError {
    #[error("job {} {}{}", .0.job_id, .0.ended(), .0.failure.as_ref().map(|failure| format!(": {}", failure.message)).unwrap_or_default())]
    Failed(Box<FailedJob>),
    /// The job has not ended, or the client still reads its large outputs. Wait again, or find the outcome in the
    /// ledger by id.
    #[error("no result for job {job_id} arrived within {}", humantime::format_duration(*waited))]
    DeadlinePassed { job_id: JobId, waited: Duration },
    /// The reply contradicts itself, or an output could not be read from the blob store. After the store is repaired,
    /// waiting again reads the output again.
    #[error("the reply to job {job_id} is unusable: {problem}")]
    BadReply { job_id: JobId, problem: String },
    /// The connection to the fleet was closed. The job still runs.
    #[error("the connection was closed before the reply to job {job_id} arrived")]
    Closed { job_id: JobId },
    /// The reply was taken before, and the ledger or the blob store does not have the result any more.
    #[error("the result of job {job_id} is not available: {problem}")]
    Unavailable { job_id: JobId, problem: String },
}

/// Why an output can't be returned as the caller asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutputError {
    #[error("job {job_id} has no output {name:?}; its outputs are {returned:?}")]
    Missing { job_id: JobId, name: String, returned: Vec<String> },
    #[error("output {name:?}: {source}")]
    Unfit { name: String, source: ArrayError },
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

impl<O> JobResult<O> {
    /// Returns an output with its dtype and shape. A name that the job did not return is [`OutputError::Missing`].
    pub fn array(&self, name: &str) -> Result<&O, OutputError> {
        let found = self.outputs.iter().find(|(output, _)| output == name);
        found.map(|(_, array)| array).ok_or_else(|| OutputError::Missing {
            job_id: self.job_id,
            name: name.to_owned(),
            returned: self.outputs.iter().map(|(output, _)| output.clone()).collect(),
        })
    }
}

impl JobResult {
    /// Returns the elements of an output, in C order. A `T` that is not the type of the output's dtype is [`OutputError::Unfit`].
    pub fn output<T: Element>(&self, name: &str) -> Result<Vec<T>, OutputError> {
        self.array(name)?.to_vec().map_err(|source| OutputError::Unfit { name: name.to_owned(), source })
    }
}

impl JobError {
    /// Returns the failure that the worker reported; `None` if the job has not ended or no failure was reported.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failed) => failed.failure.as_ref(),
            Self::DeadlinePassed { .. } | Self::BadReply { .. } | Self::Closed { .. } | Self::Unavailable { .. } => {
                None
            }
        }
    }

    /// Returns the text that the job's kernels printed before it failed.
    pub fn printf_output(&self) -> Option<&PrintfOutput> {
        match self {
            Self::Failed(failed) => failed.printf_output.as_ref(),
            Self::DeadlinePassed { .. } | Self::BadReply { .. } | Self::Closed { .. } | Self::Unavailable { .. } => {
                None
            }
        }
    }

    pub fn job_id(&self) -> JobId {
        match self {
            Self::Failed(failed) => failed.job_id,
            Self::DeadlinePassed { job_id, .. }
            | Self::BadReply { job_id, .. }
            | Self::Closed { job_id }
            | Self::Unavailable { job_id, .. } => *job_id,
        }
    }
}
