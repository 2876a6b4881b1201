//! Publishes and records the outcomes of a message's jobs.

use std::sync::Arc;

use futures::{future::try_join_all, join};
use gpufleet_schema::{
    AttemptFinished, AttemptState, Encoding, Event, Failure, JobInfo, OneOrMany, Reply, Task, Timings,
    bounds::DELIVERIES_MAX,
};
use gpufleet_transport::PublishError;
use tracing::warn;

use super::{
    Supervisor,
    arrays::JobOutput,
    attempt_result::AttemptResult,
    clock::{micros, unix_ms},
    content::{Content, RawMessage},
    envelope::Envelope,
    gathered_replies::Recipient,
    handle::Input,
    outbox::{Again, Forwarded, encode},
    task_queue::Route,
};
use crate::{
    dispatcher::{MessageNo, PublishFailure},
    disposition::Disposition,
    failpoint::{self, Failpoint},
    forwarding::Destination,
};

/// Estimated size of a reply without outputs, in bytes.
const REPLY_BYTES: usize = 512;

/// Returns whether the ledger gets the outputs of a job that ended like this. A host program has an output and files also if it failed.
fn keeps(state: AttemptState, envelope: &Envelope) -> bool {
    state == AttemptState::Succeeded || envelope.route == Route::Program && state == AttemptState::Failed
}

/// A job of a message after its attempt, with its disposition.
pub(super) struct Concluded {
    pub(super) index: usize,
    pub(super) disposition: Disposition,
    pub(super) attempt: AttemptResult,
}

impl Concluded {
    /// Returns the reply if the job is over.
    fn reply<'a>(&'a self, task: &Task<'_>, envelope: &Envelope) -> Option<Reply<'a>> {
        let Disposition::Final { state, failure, .. } = &self.disposition else { return None };
        Some(Reply {
            version: gpufleet_schema::VERSION,
            job_id: Some(task.job_id),
            attempt: envelope.attempt,
            state: *state,
            failure: failure.clone(),
            outputs: self.attempt.outputs.iter().map(JobOutput::as_output).collect(),
            timings: self.timings(task, envelope),
            ran_on: self.attempt.ran_on.clone(),
            printf_output: self.attempt.printed.clone(),
            // The client of a session has its use from the session itself.
            session: self.attempt.session.clone().filter(|_| envelope.route == Route::Program).map(Box::new),
        })
    }

    /// Returns the approximate size of the job's reply, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let outputs: usize = self.attempt.outputs.iter().map(JobOutput::inline_bytes).sum();
        REPLY_BYTES + outputs + self.attempt.printed.as_ref().map_or(0, |printed| printed.text.len())
    }

    fn timings(&self, task: &Task<'_>, envelope: &Envelope) -> Timings {
        let queue_us = micros(envelope.received.since_submission(task.submitted_ms));
        Timings { queue_us, ..self.attempt.timings.clone() }
    }
}

impl From<PublishError> for PublishFailure {
    fn from(error: PublishError) -> Self {
        Self { reason: error.to_string() }
    }
}

impl PublishFailure {
    pub(super) fn panicked() -> Self {
        Self { reason: "publishing panicked".to_owned() }
    }

    pub(super) fn channel_closed() -> Self {
        Self { reason: "the channel of the delivery is closed".to_owned() }
    }
}

impl Supervisor {
    /// Publishes the dispositions of some of a message's jobs and records them, both at the same time. The dispatcher is informed when each
    /// is confirmed. `last_attempt` is the highest attempt number of the message and its redeliveries.
    pub(super) async fn answer(
        self: &Arc<Self>,
        message: MessageNo,
        content: &Content,
        jobs: Vec<Concluded>,
        last_attempt: u32,
    ) -> Input {
        failpoint::reach(Failpoint::AfterKernel);
        let (envelope, tasks) = (content.envelope(), content.tasks());
        let finished = |job: &Concluded| self.finished_event(job, &tasks[job.index], envelope);
        let mut traced = Vec::new();
        let finished = jobs.iter().filter_map(finished).inspect(|finished| {
            self.metrics.attempt_recorded(finished);
            traced.extend(self.traces.as_ref().and_then(|traces| traces.attempt(finished)));
        });
        let events = finished.map(Event::AttemptFinished).collect();
        let publishing = async {
            let published = self.publish_outcomes(content, &jobs, last_attempt).await;
            let is_lost = published.is_err();
            traced.into_iter().for_each(|attempt| attempt.replied(is_lost));
            failpoint::reach(Failpoint::AfterReply);
            self.dispatcher.tell(Input::Answered(message, published.map_err(PublishFailure::from)));
        };
        let recording = async {
            failpoint::hold(Failpoint::AfterReply).await;
            self.events.send_confirmed(events).await
        };
        let ((), recorded) = join!(publishing, recording);
        failpoint::reach(Failpoint::AfterEvents);
        Input::Recorded(message, recorded.map_err(PublishFailure::from))
    }

    async fn publish_outcomes(
        self: &Arc<Self>,
        content: &Content,
        jobs: &[Concluded],
        last_attempt: u32,
    ) -> Result<(), PublishError> {
        let (envelope, tasks) = (content.envelope(), content.tasks());
        let is_sent_on = |job: &Concluded| !matches!(job.disposition, Disposition::Final { dead_letter: None, .. });
        if jobs.iter().any(is_sent_on) {
            let originals = content.originals();
            let sent_on = jobs.iter().map(|job| self.send_on(content, job, originals[job.index], last_attempt));
            Box::pin(try_join_all(sent_on)).await?;
        }
        let reply_to = envelope.reply_to().ok().flatten();
        let replies = jobs.iter().filter_map(|job| {
            let task = &tasks[job.index];
            let client = envelope.recipient(task.reply.as_ref(), reply_to.as_ref())?;
            Some((client.clone(), job.reply(task, envelope)?))
        });
        let mut replies: Vec<_> = replies.collect();
        // Only a message with one task can use gathered replies, and it has at most one reply.
        if !content.is_list()
            && envelope.reads_lists()
            && let Some((client, reply)) = replies.pop()
        {
            let encoded = encode(content.encoding, &OneOrMany::One(reply));
            let token = envelope.reply_token().map(str::to_owned);
            let recipient = Recipient { client, token, encoding: content.encoding };
            return self.publish_gathered(envelope, recipient, encoded).await;
        }
        self.publish_replies(envelope, content.encoding, replies, content.is_list()).await
    }

    /// Replies to a list without jobs.
    pub(super) async fn answer_nothing(&self, envelope: &Envelope) -> Result<(), PublishError> {
        let (Ok(encoding), Ok(Some(client))) = (envelope.encoding(), envelope.reply_to()) else { return Ok(()) };
        self.publish_reply(envelope, encoding, &client, &OneOrMany::Many(Vec::new())).await
    }

    /// Publishes a job that runs again as a message of its own, and dead-letters a job that was given up so that an operator can inspect
    /// it.
    async fn send_on(
        &self,
        content: &Content,
        job: &Concluded,
        original: &[u8],
        last_attempt: u32,
    ) -> Result<(), PublishError> {
        let (envelope, job_id) = (content.envelope(), content.tasks()[job.index].job_id);
        // The message may be redelivered after the job has left it, above all if it is a list. So the job's next attempt number is higher
        // than any that redeliveries of the message can get.
        let comes_again = content.is_list() || !envelope.is_live();
        let beyond = if comes_again { u32::try_from(DELIVERIES_MAX).unwrap_or(u32::MAX) } else { 0 };
        let next = last_attempt.saturating_add(beyond);
        match &job.disposition {
            Disposition::Again { past, after, .. } => {
                // If the job had started, skip an attempt number, by which [`Envelope::may_have_started`] recognises that. Gaps are
                // harmless.
                let has_started = job.attempt.ran_on.is_some();
                let gap = u32::from(past.unavailable > envelope.past.unavailable && has_started);
                let again = Again { attempt: next.saturating_add(1 + gap), past: *past, after: *after };
                self.publish_task(envelope, job_id, original.to_vec(), again).await
            }
            Disposition::Forward { history, to } => {
                let forwarded = Forwarded { attempt: next, past: envelope.past, history: *history, to: *to };
                self.publish_forwarded(envelope, job_id, original.to_vec(), forwarded).await?;
                if let Destination::Class(_) = to {
                    self.metrics.job_forwarded(envelope.pool_id);
                }
                Ok(())
            }
            // The broker redelivers the whole message anyway.
            Disposition::HandBack if !envelope.is_live() => Ok(()),
            Disposition::HandBack => {
                let again = Again { attempt: next, past: envelope.past, after: None };
                self.publish_task(envelope, job_id, original.to_vec(), again).await
            }
            Disposition::Final { dead_letter: Some(reason), .. } => {
                self.publish_dead(envelope, original.to_vec(), reason).await
            }
            Disposition::Final { dead_letter: None, .. } => Ok(()),
        }
    }

    /// Returns the event of an attempt's end, which also describes the start and the job. `None` if the attempt does not count.
    fn finished_event(&self, job: &Concluded, task: &Task<'_>, envelope: &Envelope) -> Option<AttemptFinished> {
        let now_ms = unix_ms();
        let (state, failure, retry_at_ms) = match &job.disposition {
            Disposition::Final { state, failure, .. } => (*state, failure.clone(), None),
            Disposition::Again { failure, after, .. } => {
                let retry_at_ms = after.map(|rung| now_ms + i64::from(rung.seconds) * 1000);
                (AttemptState::Lost, Some(failure.clone()), retry_at_ms)
            }
            Disposition::HandBack | Disposition::Forward { .. } => return None,
        };
        let attempt = &job.attempt;
        Some(AttemptFinished {
            job_id: task.job_id,
            attempt: envelope.attempt,
            worker: self.config.name.clone(),
            device: attempt.ran_on.as_ref().map(|ran_on| ran_on.device),
            ran_on: attempt.ran_on.clone(),
            started_ms: attempt.started_ms,
            at_ms: now_ms,
            state,
            failure,
            retry_at_ms,
            output_bytes: attempt.outputs.iter().map(JobOutput::bytes).sum(),
            timings: job.timings(task, envelope),
            charged_us: attempt.charged_us,
            user_id: None,
            job: Some(Box::new(self.job_info(task, envelope))),
            printf_output: attempt.printed.clone(),
            kept: attempt.kept.clone().filter(|_| keeps(state, envelope)).map(Box::new),
            session: attempt.session.clone().map(Box::new),
        })
    }

    pub(super) fn job_info(&self, task: &Task<'_>, envelope: &Envelope) -> JobInfo {
        let client = task.reply.as_ref().map(ToString::to_string).or_else(|| envelope.properties.reply_to.clone());
        let user_id = envelope.user.clone();
        let traceparent = task.traceparent.or_else(|| envelope.traceparent());
        JobInfo { user_id, traceparent, ..JobInfo::of(task, envelope.pool.clone(), envelope.priority, client) }
    }

    /// Answers a message that can't be run, and dead-letters it with the reason. The reply goes to the message's `reply_to` if its tasks
    /// name no client. It is in the encoding that the message names, or else in JSON, which needs no library to read.
    pub(super) async fn refuse(&self, raw: &RawMessage, failure: Failure) -> Result<(), PublishError> {
        let RawMessage { envelope, body } = raw;
        warn!(
            message_id = envelope.message_id(),
            code = failure.code.name(),
            reason = failure.message,
            "message dead-lettered"
        );
        self.metrics.message_refused(envelope.pool_id);
        let encoding = envelope.encoding().unwrap_or(Encoding::Json);
        let jobs = envelope.salvage(body);
        self.publish_dead(envelope, body.clone(), &failure.message).await?;
        let reply_to = envelope.reply_to().ok().flatten();
        let replies = jobs.iter().filter_map(|job| {
            let reply = Reply {
                version: gpufleet_schema::VERSION,
                job_id: job.job_id,
                attempt: envelope.attempt,
                state: AttemptState::Dead,
                failure: Some(failure.clone()),
                outputs: Vec::new(),
                timings: Timings::default(),
                ran_on: None,
                printf_output: None,
                session: None,
            };
            Some((envelope.recipient(job.reply.as_ref(), reply_to.as_ref())?.clone(), reply))
        });
        self.publish_replies(envelope, encoding, replies.collect(), jobs.len() > 1).await?;
        // Do not record an inadmissible message: the user may not run jobs here, or may have taken the id from another user's job.
        if envelope.inadmissible.is_some() {
            return Ok(());
        }
        let known = jobs.iter().filter_map(|job| job.job_id);
        let recorded =
            if known.clone().next().is_some() { known.collect() } else { Vec::from_iter(envelope.record_id(body)) };
        let events = recorded.into_iter().map(|job_id| {
            Event::AttemptFinished(AttemptFinished {
                job_id,
                attempt: envelope.attempt,
                worker: self.config.name.clone(),
                device: None,
                ran_on: None,
                started_ms: None,
                at_ms: unix_ms(),
                state: AttemptState::Dead,
                failure: Some(failure.clone()),
                retry_at_ms: None,
                output_bytes: 0,
                timings: Timings::default(),
                job: None,
                charged_us: None,
                user_id: envelope.user.clone(),
                printf_output: None,
                kept: None,
                session: None,
            })
        });
        self.events.send_confirmed(events.collect()).await
    }
}
