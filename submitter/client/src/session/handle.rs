//! Waits for the offers and the outcome of a session.

use std::time::Duration;

use blake3::Hash;
use gpufleet_schema::{JobId, SessionOffer};

use crate::{Fleet, Job, JobError, JobHandle, JobResult, SubmitError, offers::PendingOffers};

/// A session whose job the broker has confirmed.
///
/// Dropping the handle does not cancel the job. A worker takes its memory back if no client connects in time.
#[derive(Debug)]
pub struct SessionHandle {
    job: JobHandle,
    offers: PendingOffers,
    /// The digest of the latest offer's token, which itself must not be printed.
    known: Option<Hash>,
}

impl Fleet {
    /// Submits the job of a session ([`Job::session`]), and returns when the broker has it on disk.
    ///
    /// The errors are those of [`Fleet::submit`], and [`SubmitError::NoSessions`]. If the future is cancelled, the job may or may not wait
    /// for a worker, which takes its memory back because no client connects.
    pub async fn open_session(&self, job: Job) -> Result<SessionHandle, SubmitError> {
        // The offer can arrive before the confirm.
        let offers = self.connection.inbox().offers().expect(job.id());
        let job = self.submit(job).await?;
        Ok(SessionHandle { job, offers, known: None })
    }
}

impl SessionHandle {
    pub fn id(&self) -> JobId {
        self.job.id()
    }

    /// Waits for the offer of a worker. `None` if the job has ended or the connection was closed: [`SessionHandle::wait`] has the outcome.
    ///
    /// An offer after the first one is that of a later attempt, because the worker of the first has died. Cancelling the future loses
    /// nothing.
    pub async fn next_offer(&mut self) -> Option<SessionOffer> {
        loop {
            let offer = tokio::select! {
                biased;
                offer = self.offers.next() => offer?,
                _ended = self.job.arrived() => return None,
            };
            // The broker may deliver a message twice.
            let token = Some(blake3::hash(offer.token.as_bytes()));
            if self.known != token {
                self.known = token;
                return Some(offer);
            }
        }
    }

    /// Waits for the outcome of the job, as [`JobHandle::wait`] does. A session that succeeded has no outputs.
    pub async fn wait(&mut self, deadline: Duration) -> Result<JobResult, JobError> {
        self.job.wait(deadline).await
    }
}
