//! How a job ended: its outputs, or why there are none.

use std::time::Duration;

use gpufleet_schema::{AttemptState, Failure, JobId, PrintfOutput, RanOn, SessionUse, Timings};

use crate::{Array, ArrayError, Element, UnreadOutput};

/// The outputs of a job that succeeded, and what the worker measured. `O` is [`UnreadOutput`](crate::UnreadOutput) for outputs
/// that may still be in the blob store ([`JobHandle::wait_unread`](crate::JobHandle::wait_unread)).
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
    /// What a host program did, with its exit code; `None` for other jobs.
    pub session: Option<Box<SessionUse>>,
    /// Time from the call of `submit` to the arrival of the reply, by this process's clock.
    pub round_trip: Duration,
    /// The files and the output of a host program that failed. Other failed jobs have no outputs.
    pub outputs: Vec<(String, UnreadOutput)>,
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
