//! A job of a message, and what became of it.

use gpufleet_schema::{AttemptFinished, AttemptState, Encoding, Event, PrintfOutput, RanOn, Reply, Task, Timings};
use tokio::sync::OwnedSemaphorePermit;
use tracing::{debug, info, warn};

use super::{Supervisor, arrays::JobOutput, clock::unix_ms, envelope::Envelope, output_room::OutputRoom};
use crate::{
    disposition::{Disposition, RetryHistory, dispose},
    forwarding::Destination,
};

pub(super) struct Concluded<'a, 'b> {
    pub(super) task: &'b Task<'a>,
    pub(super) disposition: Disposition,
    outputs: Vec<JobOutput>,
    printed: Option<PrintfOutput>,
    timings: Timings,
    ran_on: Option<RanOn>,
    started_ms: Option<i64>,
    _room: Option<OwnedSemaphorePermit>,
}

impl Supervisor {
    /// Attempts a job and decides what becomes of it. Of a job in a list the outputs are copied, so that it holds no staging memory.
    pub(super) async fn conclude<'a, 'b>(
        &self,
        task: &'b Task<'a>,
        envelope: &Envelope,
        encoding: Encoding,
        list: Option<&OutputRoom>,
    ) -> Concluded<'a, 'b> {
        let attempt = self.attempt(task, envelope, encoding, list).await;
        let disposition = dispose(attempt.ending, envelope.past, task.limits.attempts_max(), envelope.delivery_count);
        tell(&disposition, task, envelope);
        if let Some(state) = disposition.attempt_state() {
            self.metrics.attempt_ended(envelope.pool_id, state);
        }
        let outputs = match list {
            None => attempt.outputs,
            Some(_) => attempt.outputs.into_iter().map(JobOutput::kept).collect(),
        };
        let (printed, timings) = (attempt.printed, attempt.timings);
        let (ran_on, started_ms) = (attempt.ran_on, attempt.started_ms);
        Concluded { task, disposition, outputs, printed, timings, ran_on, started_ms, _room: attempt.room }
    }

    /// What the ledger has to learn of an attempt: its end, which tells the start and the job as well. None if the job was not touched.
    pub(super) fn finished_event(&self, job: &Concluded<'_, '_>, envelope: &Envelope) -> Option<Event> {
        let now_ms = unix_ms();
        let (state, failure, retry_at_ms) = match &job.disposition {
            Disposition::Final { state, failure, .. } => (*state, failure.clone(), None),
            Disposition::Again { failure, after, .. } => {
                let retry_at_ms = after.map(|rung| now_ms + i64::from(rung.seconds) * 1000);
                (AttemptState::Lost, Some(failure.clone()), retry_at_ms)
            }
            Disposition::HandBack | Disposition::Forward { .. } => return None,
        };
        Some(Event::AttemptFinished(AttemptFinished {
            job_id: job.task.job_id,
            attempt: envelope.attempt,
            worker: self.config.name.clone(),
            device: job.ran_on.as_ref().map(|ran_on| ran_on.device),
            ran_on: job.ran_on.clone(),
            started_ms: job.started_ms,
            at_ms: now_ms,
            state,
            failure,
            retry_at_ms,
            output_bytes: job.outputs.iter().map(JobOutput::bytes).sum::<usize>() as u64,
            timings: job.timings.clone(),
            job: Some(Box::new(self.job_info(job.task, envelope))),
            printf_output: job.printed.clone(),
        }))
    }
}

impl Concluded<'_, '_> {
    pub(super) fn is_final(&self) -> bool {
        matches!(self.disposition, Disposition::Final { .. })
    }

    pub(super) fn has_started(&self) -> bool {
        self.ran_on.is_some()
    }

    pub(super) fn is_handed_back(&self) -> bool {
        self.disposition == Disposition::HandBack
    }

    /// What its outputs take in a reply.
    pub(super) fn inline_bytes(&self) -> usize {
        self.outputs.iter().map(JobOutput::inline_bytes).sum()
    }

    pub(super) fn printed_bytes(&self) -> usize {
        self.printed.as_ref().map_or(0, |printed| printed.text.len())
    }

    pub(super) fn failure_bytes(&self) -> usize {
        let (Disposition::Final { failure: Some(failure), .. } | Disposition::Again { failure, .. }) =
            &self.disposition
        else {
            return 0;
        };
        failure.message.len() + failure.detail.as_ref().map_or(0, String::len)
    }

    /// The reply, if the job is over.
    pub(super) fn reply(&self, attempt: u32) -> Option<Reply<'_>> {
        let Disposition::Final { state, failure, .. } = &self.disposition else { return None };
        Some(Reply {
            version: gpufleet_schema::VERSION,
            job_id: Some(self.task.job_id),
            attempt,
            state: *state,
            failure: failure.clone(),
            outputs: self.outputs.iter().map(JobOutput::as_output).collect(),
            timings: self.timings.clone(),
            ran_on: self.ran_on.clone(),
            printf_output: self.printed.clone(),
        })
    }
}

fn tell(disposition: &Disposition, task: &Task<'_>, envelope: &Envelope) {
    let (job_id, attempt) = (task.job_id, envelope.attempt);
    match disposition {
        Disposition::Final { state, failure: None, .. } => debug!(%job_id, attempt, %state, "job ended"),
        Disposition::Final { state, failure: Some(failure), .. } => {
            info!(%job_id, attempt, %state, code = failure.code.name(), "job ended");
        }
        Disposition::Again { past: RetryHistory { losses, unavailable }, failure, after } => {
            let seconds = after.map_or(0, |rung| rung.seconds);
            warn!(%job_id, attempt, losses, unavailable, seconds, reason = failure.message, "job scheduled for a retry");
        }
        Disposition::Forward { history, to: Destination::Class(class) } => {
            info!(%job_id, %class, forwards = history.forwards, "requirements not met here, job forwarded");
        }
        Disposition::Forward { history, to: Destination::Later(rung) } => {
            let (waits, seconds) = (history.waits, rung.seconds);
            info!(%job_id, waits, seconds, "requirements not met by any worker, job delayed");
        }
        Disposition::HandBack => debug!(%job_id, "job requeued"),
    }
}
