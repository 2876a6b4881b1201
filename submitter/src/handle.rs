//! Waiting for a job.

use std::{
    future::IntoFuture,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use gpufleet_schema::{AttemptState, Failure, JobId, PrintfOutput, RanOn, Timings};

use crate::{Array, ArrayError, Element, client::Connection, inbox::Awaited, receipt::Receipt};

/// A job that the broker has confirmed. Await it, or [`JobHandle::wait`] with a deadline of your own.
///
/// Dropping the handle does not cancel the job: it runs, its outcome is recorded, and its reply is dropped when it comes.
#[derive(Debug)]
pub struct JobHandle {
    receipt: Receipt,
    /// Keeps the connection open while somebody waits.
    connection: Arc<Connection>,
}

/// What a job gave back.
#[derive(Debug, Clone, PartialEq)]
pub struct JobResult {
    pub job_id: JobId,
    pub state: AttemptState,
    pub attempt: u32,
    pub timings: Timings,
    pub ran_on: Option<RanOn>,
    /// What its kernels printed; none if they printed nothing.
    pub printf_output: Option<PrintfOutput>,
    /// From the call of `submit` to the reply's arrival, by this process's clock.
    pub round_trip: Duration,
    pub outputs: Vec<(String, Array)>,
}

/// A job's final outcome, if that is not a success.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedJob {
    pub job_id: JobId,
    pub state: AttemptState,
    pub attempt: u32,
    pub failure: Option<Failure>,
    pub timings: Timings,
    pub ran_on: Option<RanOn>,
    /// What its kernels printed before it ended.
    pub printf_output: Option<PrintfOutput>,
    pub round_trip: Duration,
}

/// Why a wait did not end with a result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum JobError {
    #[error("job {} {}{}", .0.job_id, .0.state, .0.failure.as_ref().map(|failure| format!(": {}", failure.message)).unwrap_or_default())]
    Failed(Box<FailedJob>),
    /// The job goes on, or its large outputs are still being read. Wait again, or look its outcome up in the history by its id.
    #[error("no result for job {job_id} arrived within {}", humantime::format_duration(*waited))]
    DeadlinePassed { job_id: JobId, waited: Duration },
    /// What it says can't be right, or what it names in the blob store can't be read. A store may be mended: wait again to read again.
    #[error("the reply to job {job_id} is unusable: {problem}")]
    BadReply { job_id: JobId, problem: String },
    /// The fleet connection was closed. The job goes on.
    #[error("the connection was closed before the reply to job {job_id} arrived")]
    Closed { job_id: JobId },
}

/// An output that can't be given as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutputError {
    #[error("job {job_id} has no output {name:?}; its outputs are {returned:?}")]
    Missing { job_id: JobId, name: String, returned: Vec<String> },
    #[error("output {name:?}: {source}")]
    Unfit { name: String, source: ArrayError },
}

impl JobHandle {
    pub(crate) fn new(awaited: Awaited, connection: Arc<Connection>, submitted: Instant) -> Self {
        Self { receipt: Receipt::new(awaited, submitted), connection }
    }

    pub fn id(&self) -> JobId {
        self.receipt.job_id()
    }

    /// Waits for the reply and for what it names in the blob store, at most this long. After [`JobError::DeadlinePassed`] it may be called
    /// again, and after [`JobError::BadReply`] if the store has been mended meanwhile; after any other outcome the handle has given all
    /// that it had.
    ///
    /// Cancelling the future loses nothing: what comes meanwhile is there for the next call.
    pub async fn wait(&mut self, deadline: Duration) -> Result<JobResult, JobError> {
        let job_id = self.id();
        let result = self.receipt.result(self.connection.blobs());
        match tokio::time::timeout(deadline, result).await {
            Err(_) => Err(JobError::DeadlinePassed { job_id, waited: deadline }),
            Ok(result) => result,
        }
    }
}

/// Waits as long as the fleet's default deadline says.
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

impl JobResult {
    /// An output with its dtype and shape.
    pub fn array(&self, name: &str) -> Result<&Array, OutputError> {
        let found = self.outputs.iter().find(|(output, _)| output == name);
        found.map(|(_, array)| array).ok_or_else(|| OutputError::Missing {
            job_id: self.job_id,
            name: name.to_owned(),
            returned: self.outputs.iter().map(|(output, _)| output.clone()).collect(),
        })
    }

    /// The elements of an output.
    pub fn output<T: Element>(&self, name: &str) -> Result<Vec<T>, OutputError> {
        self.array(name)?.to_vec().map_err(|source| OutputError::Unfit { name: name.to_owned(), source })
    }
}

impl JobError {
    /// The failure as the worker told it, if the job came to one.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failed) => failed.failure.as_ref(),
            Self::DeadlinePassed { .. } | Self::BadReply { .. } | Self::Closed { .. } => None,
        }
    }

    /// What the job's kernels printed before it failed.
    pub fn printf_output(&self) -> Option<&PrintfOutput> {
        match self {
            Self::Failed(failed) => failed.printf_output.as_ref(),
            Self::DeadlinePassed { .. } | Self::BadReply { .. } | Self::Closed { .. } => None,
        }
    }

    pub fn job_id(&self) -> JobId {
        match self {
            Self::Failed(failed) => failed.job_id,
            Self::DeadlinePassed { job_id, .. } | Self::BadReply { job_id, .. } | Self::Closed { job_id } => *job_id,
        }
    }
}
