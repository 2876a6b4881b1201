//! From a job's reply to its result.
//!
//! The reply comes first, then the arrays that it only names are read, one after the other. Whatever has been reached stays here until all of it
//! is given out at once: a wait may be cancelled anywhere, and the next one goes on from there. A reading that nobody waits for goes on too, so
//! that short waits come to an end together. One that failed leaves the reply as it is, and the next wait reads again.

use std::time::Instant;

use gpufleet_schema::{AttemptState, JobId};
use gpufleet_transport::BlobStore;
use tokio::task::JoinSet;

use crate::{
    Array, FailedJob, JobError, JobResult,
    inbox::{Arrived, Awaited},
    output::{self, ReplyOutput},
};

/// The right to one job's result.
#[derive(Debug)]
pub(crate) struct Receipt {
    awaited: Awaited,
    submitted: Instant,
    /// The reply, until its result was given out.
    arrived: Option<Arrived>,
    /// What reads the first of the outputs that are not here yet; it ends with the receipt.
    reading: JoinSet<Result<Array, String>>,
}

impl Receipt {
    pub(crate) fn new(awaited: Awaited, submitted: Instant) -> Self {
        Self { awaited, submitted, arrived: None, reading: JoinSet::new() }
    }

    pub(crate) fn job_id(&self) -> JobId {
        self.awaited.job_id()
    }

    /// The result, as long as that takes. Cancelling loses nothing.
    pub(crate) async fn result(&mut self, store: Option<&BlobStore>) -> Result<JobResult, JobError> {
        let job_id = self.job_id();
        if self.arrived.is_none() {
            let arrived = self.awaited.next().await.ok_or(JobError::Closed { job_id })?;
            self.arrived = Some(arrived);
        }
        self.fetch(store).await.map_err(|problem| JobError::BadReply { job_id, problem })?;
        let arrived = self.arrived.take().expect("a reply that has arrived stays until here");
        outcome(job_id, arrived, self.submitted)
    }

    /// Reads what a reply of success has in the blob store.
    async fn fetch(&mut self, store: Option<&BlobStore>) -> Result<(), String> {
        let arrived = self.arrived.as_mut().filter(|arrived| arrived.reply.state == AttemptState::Succeeded);
        let outputs = arrived.and_then(|arrived| arrived.outputs.as_mut().ok());
        for (name, output) in outputs.into_iter().flatten() {
            let ReplyOutput::Stored(stored) = output else { continue };
            if self.reading.is_empty() {
                self.reading.spawn(output::read(name.clone(), stored.clone(), store.cloned()));
            }
            let read = self.reading.join_next().await.expect("there is one, and nobody else takes it");
            *output = ReplyOutput::Array(read.expect("reading does not panic, and ends with its receipt alone")?);
        }
        Ok(())
    }
}

/// What a reply means whose arrays are all here.
fn outcome(job_id: JobId, arrived: Arrived, submitted: Instant) -> Result<JobResult, JobError> {
    let Arrived { reply, outputs, at } = arrived;
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
            round_trip,
        })));
    }
    let outputs = outputs.map_err(|problem| JobError::BadReply { job_id, problem })?;
    let outputs = outputs.into_iter().map(|(name, output)| match output {
        ReplyOutput::Array(array) => (name, array),
        ReplyOutput::Stored(_) => unreachable!("what waited in the store was read"),
    });
    Ok(JobResult {
        job_id,
        state: reply.state,
        attempt: reply.attempt,
        timings: reply.timings,
        ran_on: reply.ran_on,
        printf_output: reply.printf_output,
        round_trip,
        outputs: outputs.collect(),
    })
}

#[cfg(test)]
mod tests;
