//! Turns a job's reply into its result.
//!
//! [`PendingResult`] waits for the reply, and then reads the outputs that are in the blob store, one after the other.
//! It keeps its progress, so a caller may cancel a wait anywhere and the next wait continues. A read also continues
//! between two waits, so a series of short waits succeeds in the end. After a failed read, the next wait reads that
//! output again.

use std::time::Instant;

use gpufleet_blobs::BlobStore;
use gpufleet_schema::{AttemptState, JobId};
use tokio::task::JoinSet;

use crate::{
    Array, JobError, JobResult,
    arrived::{ArrivedReply, outcome},
    inbox::PendingReply,
    output::{self, UnreadOutput},
};

/// The result of one job, before it is complete.
#[derive(Debug)]
pub(crate) struct PendingResult {
    awaited: PendingReply,
    submitted: Instant,
    /// The reply, from its arrival until `result` returns the result.
    arrived: Option<Box<ArrivedReply>>,
    /// The task that reads the first missing output. Dropping this aborts it.
    reading: JoinSet<Result<Array, String>>,
}

impl PendingResult {
    pub(crate) fn new(awaited: PendingReply, submitted: Instant) -> Self {
        Self { awaited, submitted, arrived: None, reading: JoinSet::new() }
    }

    pub(crate) fn job_id(&self) -> JobId {
        self.awaited.job_id()
    }

    /// When the job was submitted, or when the program attached to it.
    pub(crate) fn since(&self) -> Instant {
        self.submitted
    }

    /// Waits for the reply without a deadline. Cancelling the future loses nothing.
    pub(crate) async fn arrive(&mut self) -> Result<(), JobError> {
        if self.arrived.is_none() {
            let job_id = self.job_id();
            let arrived = self.awaited.next().await.ok_or(JobError::Closed { job_id })?;
            self.arrived = Some(arrived);
        }
        Ok(())
    }

    /// Drops the reply, if it comes, because the program has the result from elsewhere.
    pub(crate) async fn end(&mut self) {
        self.awaited.end().await;
    }

    /// Waits for the result without a deadline. Cancelling the future loses nothing.
    pub(crate) async fn result(&mut self, store: Option<&BlobStore>) -> Result<JobResult, JobError> {
        let job_id = self.job_id();
        self.arrive().await?;
        self.fetch(store).await.map_err(|problem| JobError::BadReply { job_id, problem })?;
        // If this is cancelled, the next wait still has the reply.
        self.awaited.take().await;
        let arrived = self.arrived.take().expect("the reply was stored above");
        let result = outcome(arrived, self.submitted)?;
        output::read_all(result, store).await
    }

    /// Waits for the reply without a deadline, and leaves large outputs in the blob store. Cancelling the future loses nothing.
    pub(crate) async fn unread(&mut self) -> Result<JobResult<UnreadOutput>, JobError> {
        self.arrive().await?;
        self.awaited.take().await;
        let arrived = self.arrived.take().expect("the reply was stored above");
        outcome(arrived, self.submitted)
    }

    /// Reads the outputs that a successful reply has in the blob store.
    async fn fetch(&mut self, store: Option<&BlobStore>) -> Result<(), String> {
        let arrived = self.arrived.as_mut().filter(|arrived| arrived.reply.state == AttemptState::Succeeded);
        let Some(outputs) = arrived.and_then(|arrived| arrived.outputs.as_mut().ok()) else { return Ok(()) };
        output::check_readable(outputs)?;
        for (name, output) in outputs {
            let UnreadOutput::Stored(stored) = output else { continue };
            if self.reading.is_empty() {
                self.reading.spawn(output::read(name.clone(), stored.clone(), store.cloned()));
            }
            let read = self.reading.join_next().await.expect("a read was started above or by an earlier call");
            *output = UnreadOutput::Array(read.expect("a read neither panics nor is aborted before this is dropped")?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
