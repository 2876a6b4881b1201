//! A reply as it arrived, and the outcome that it tells.

use std::time::Instant;

use gpufleet_schema::{AttemptState, JobId, Reply};

use crate::{
    FailedJob, JobError, JobResult,
    output::{self, UnreadOutput},
};

/// A reply that has arrived. It is boxed, because a client can wait for very many.
#[derive(Debug)]
pub(crate) struct ArrivedReply {
    pub(crate) job_id: JobId,
    /// The reply without its outputs.
    pub(crate) reply: Reply<'static>,
    /// The checked outputs, or why they are invalid.
    pub(crate) outputs: Result<Vec<(String, UnreadOutput)>, String>,
    pub(crate) at: Instant,
}

pub(crate) fn arrived(job_id: JobId, mut reply: Reply<'_>, at: Instant) -> Box<ArrivedReply> {
    let outputs = output::checked(std::mem::take(&mut reply.outputs));
    Box::new(ArrivedReply { job_id, reply: reply.into_owned(), outputs, at })
}

/// The outcome of a reply.
pub(crate) fn outcome(arrived: Box<ArrivedReply>, submitted: Instant) -> Result<JobResult<UnreadOutput>, JobError> {
    let ArrivedReply { job_id, reply, outputs, at } = *arrived;
    let round_trip = at.duration_since(submitted);
    if reply.state != AttemptState::Succeeded {
        return Err(JobError::Failed(Box::new(FailedJob {
            job_id,
            state: reply.state,
            attempt: reply.attempt,
            failure: reply.failure,
            timings: reply.timings,
            ran_on: reply.ran_on,
            printf_output: reply.printf_output,
            session: reply.session,
            round_trip,
            // The failure says more than an output that can't be read.
            outputs: outputs.unwrap_or_default(),
        })));
    }
    let outputs = outputs.map_err(|problem| JobError::BadReply { job_id, problem })?;
    Ok(JobResult {
        job_id,
        state: reply.state,
        attempt: reply.attempt,
        timings: reply.timings,
        ran_on: reply.ran_on,
        printf_output: reply.printf_output,
        round_trip,
        outputs,
    })
}
