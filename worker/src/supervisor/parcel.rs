//! One message from its delivery to its acknowledgement.
//!
//! ```text
//! opened ─▶ decoded ─▶ every job attempted ─▶ again / handed back: published as messages of their own ─┐
//!   │          │                           └▶ final: reply, dead letter where due ───────────────────────┼─▶ events ─▶ ack
//!   └──────────┴─ unreadable: answer, dead letter with the reason ────────────────────────────────────────┘
//! ```
//! Each arrow into `events` and `ack` waits for the broker's confirmation. If one does not come, the message is not
//! acknowledged: the broker delivers it again, its jobs run again, and the ledger keeps the first outcome.
//!
//! A list is answered in portions while its other jobs run. What a job of a list returns is copied out of the executor's staging
//! memory at once: lists that held staging while their other jobs wait for some would wait for each other for ever.

use std::{mem, panic::AssertUnwindSafe, pin::pin, sync::Arc};

use futures::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use gpufleet_schema::{
    AttemptFinished, AttemptState, Batch, ClientName, DecodeError, Encoding, Event, Failure, FailureCode, Reply,
    Timings, TooLarge, Verdict,
    bounds::{DELIVERIES_MAX, MESSAGE_BYTES_MAX},
};
use gpufleet_transport::{Delivery, PublishError, Settled};
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use super::{
    Supervisor,
    clock::unix_ms,
    conclusion::Concluded,
    content::Content,
    envelope::Envelope,
    intake::TaskQueue,
    load::PrefetchCredit,
    outbox::{Again, Forwarded},
    output_room::{OutputRoom, PORTION_BYTES},
    owed::is_refusal,
};
use crate::{
    disposition::Disposition,
    failpoint::{self, Failpoint},
    forwarding::Destination,
};

/// A message that was given back this often leaves the queue and comes in anew, lest workers that come and go make it look like
/// poison.
const HAND_BACKS_MAX: u64 = DELIVERIES_MAX / 2;

/// What is to be done with the delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settlement {
    /// Acknowledged: all of its jobs have their outcome, and whatever comes again under its name is answered already.
    Answered,
    /// Acknowledged: some of its jobs have left it, as messages that may have its very name and body.
    SentOn,
    Requeue,
}

/// Jobs of a message that have ended and are to be answered together.
#[derive(Default)]
struct Portion<'a, 'b> {
    jobs: Vec<Concluded<'a, 'b>>,
    bytes: usize,
}

impl<'a, 'b> Portion<'a, 'b> {
    fn push(&mut self, job: Concluded<'a, 'b>) {
        self.bytes += job.inline_bytes() + job.failure_bytes() + job.printed_bytes();
        self.jobs.push(job);
    }
}

/// What has become of a message's jobs so far.
#[derive(Debug, Clone, Copy)]
struct Tally {
    handed_back: bool,
    all_final: bool,
}

impl Tally {
    fn count(&mut self, portion: &Portion<'_, '_>) {
        self.handed_back |= portion.jobs.iter().any(Concluded::is_handed_back);
        self.all_final &= portion.jobs.iter().all(Concluded::is_final);
    }
}

impl Supervisor {
    /// Handles one message to its end.
    pub(super) async fn handle(self: Arc<Self>, delivery: Delivery, queue: TaskQueue, credit: PrefetchCredit) {
        let (envelope, body) = Envelope::open(delivery, queue, credit);
        let _in_flight = self.dedup.take(&envelope, &body).await;
        if self.dedup.was_answered(&envelope, &body) {
            info!(message_id = envelope.message_id(), "duplicate of an answered message, acknowledged");
            return self.settle(envelope, &body, Settlement::Answered).await;
        }
        let outcome = AssertUnwindSafe(self.process(&envelope, &body)).catch_unwind().await;
        let settlement = match outcome {
            Ok(Ok(settlement)) => settlement,
            Ok(Err(error)) => {
                warn!(message_id = envelope.message_id(), %error, "outcome not confirmed, delivery requeued");
                self.await_requeue(&envelope).await;
                Settlement::Requeue
            }
            // A bug in the worker; the panic has been printed. The broker redelivers the message until it is dead-lettered.
            Err(_) => {
                error!(message_id = envelope.message_id(), "handling the message panicked, delivery requeued");
                Settlement::Requeue
            }
        };
        self.settle(envelope, &body, settlement).await;
    }

    async fn settle(&self, envelope: Envelope, body: &[u8], settlement: Settlement) {
        let message_id = envelope.message_id().to_owned();
        let settled = match settlement {
            Settlement::Answered | Settlement::SentOn => envelope.acker.ack().await,
            Settlement::Requeue => envelope.acker.requeue().await,
        };
        match settled {
            Ok(Settled::Sent) => return,
            Ok(Settled::Stale) => {
                self.metrics.stale_settlements.inc();
                warn!(message_id, "connection lost before the message was settled, the broker will redeliver it");
            }
            Err(error) => warn!(message_id, %error, "delivery not settled, the broker may redeliver it"),
        }
        if settlement == Settlement::Answered {
            self.dedup.remember(&message_id, body);
        }
    }

    async fn process(&self, envelope: &Envelope, body: &[u8]) -> Result<Settlement, PublishError> {
        if envelope.delivery_count > DELIVERIES_MAX {
            let reason =
                format!("the broker delivered the message {} times without an outcome", envelope.delivery_count);
            let failure = Failure::new(Verdict::Infrastructure, FailureCode::AttemptsExhausted, reason);
            return self.refuse(envelope, body, failure).await;
        }
        if body.len() > MESSAGE_BYTES_MAX {
            let reason = format!("{}: {}", TooLarge::message(body.len() as u64), TooLarge::ADVICE);
            let failure = Failure::new(Verdict::User, FailureCode::MalformedTask, reason);
            return self.refuse(envelope, body, failure).await;
        }
        if envelope.uncounted {
            return self.count_again(envelope, body).await;
        }
        let readable = envelope.encoding().and_then(|encoding| Ok((encoding, envelope.reply_to()?)));
        let (encoding, reply_to) = match readable {
            Ok(readable) => readable,
            Err(reason) => {
                let failure = Failure::new(Verdict::User, FailureCode::MalformedTask, reason);
                return self.refuse(envelope, body, failure).await;
            }
        };
        failpoint::reach(Failpoint::BeforeDecode);
        failpoint::reach(Failpoint::Handling);
        match encoding.decode_tasks(body) {
            Ok(tasks) if tasks.is_empty() => {
                if let Some(client) = reply_to {
                    self.publish_reply(envelope, encoding, &client, &Batch::Many(Vec::new())).await?;
                }
                Ok(Settlement::Answered)
            }
            Ok(tasks) => {
                envelope.credit.decoded(tasks.len(), body.len());
                self.run_all(envelope, reply_to, &Content::new(body, encoding, &tasks)).await
            }
            Err(error) => self.refuse(envelope, body, unreadable(&error)).await,
        }
    }

    /// Requeues a message without a delivery count as a copy that has one. If its queue keeps rejecting the copy, the message is
    /// dead-lettered, because the broker would redeliver it for ever.
    async fn count_again(&self, envelope: &Envelope, body: &[u8]) -> Result<Settlement, PublishError> {
        match self.publish_copy(envelope, body.to_vec()).await {
            Ok(()) => Ok(Settlement::SentOn),
            Err(error) if is_refusal(&error) && envelope.is_live() && !self.leaving.is_cancelled() => {
                let reason =
                    format!("the broker redelivered the message, and its queue rejects the requeued copy: {error}");
                let failure = Failure::new(Verdict::Infrastructure, FailureCode::AttemptsExhausted, reason);
                self.refuse(envelope, body, failure).await
            }
            Err(error) => Err(error),
        }
    }

    async fn run_all(
        &self,
        envelope: &Envelope,
        reply_to: Option<ClientName>,
        content: &Content<'_, '_>,
    ) -> Result<Settlement, PublishError> {
        let Content { encoding, tasks, .. } = *content;
        let list = content.is_list().then(OutputRoom::new);
        let mut jobs: FuturesUnordered<_> =
            tasks.iter().map(|task| self.conclude(task, envelope, encoding, list.as_ref())).collect();
        let mut portion = Portion::default();
        let (mut tally, mut refused) = (Tally { handed_back: false, all_final: true }, None);
        let mut recording = JoinSet::new();
        while let Some(job) = jobs.next().await {
            if refused.is_some() {
                // All come to their end, lest their places are given to others while they run.
                continue;
            }
            portion.push(job);
            if portion.bytes < PORTION_BYTES || jobs.is_empty() {
                continue;
            }
            let ripe = mem::take(&mut portion);
            tally.count(&ripe);
            let mut answering = pin!(self.answer(envelope, reply_to.as_ref(), content, ripe, &mut recording));
            // The other jobs go on meanwhile: their places become free and their time limits hold.
            refused = loop {
                tokio::select! {
                    outcome = &mut answering => break outcome.err(),
                    Some(job) = jobs.next() => portion.push(job),
                }
                if jobs.is_empty() {
                    envelope.credit.settles();
                }
            };
        }
        if let Some(error) = refused {
            return Err(error);
        }
        envelope.credit.settles();
        let untouched = portion.jobs.len() == tasks.len() && portion.jobs.iter().all(Concluded::is_handed_back);
        if untouched && envelope.delivery_count < HAND_BACKS_MAX {
            return Ok(Settlement::Requeue);
        }
        tally.count(&portion);
        self.answer(envelope, reply_to.as_ref(), content, portion, &mut recording).await?;
        while let Some(recorded) = recording.join_next().await {
            recorded.expect("sending events does not panic")?;
        }
        // Asked last: as long as the delivery was live, what is handed back left as a message of its own.
        let left_to_broker = tally.handed_back && !envelope.is_live();
        Ok(match tally.all_final {
            true => Settlement::Answered,
            false if left_to_broker => Settlement::Requeue,
            false => Settlement::SentOn,
        })
    }

    /// Publishes what became of some of the message's jobs, and begins to record it: later portions don't wait for the record of
    /// earlier ones, the acknowledgement does.
    async fn answer(
        &self,
        envelope: &Envelope,
        reply_to: Option<&ClientName>,
        content: &Content<'_, '_>,
        portion: Portion<'_, '_>,
        recording: &mut JoinSet<Result<(), PublishError>>,
    ) -> Result<(), PublishError> {
        for job in &portion.jobs {
            self.send_on(envelope, content, job).await?;
        }
        let replies = portion.jobs.iter().filter_map(|job| {
            let client = job.task.reply.as_ref().or(reply_to)?;
            Some((client.clone(), job.reply(envelope.attempt)?))
        });
        failpoint::reach(Failpoint::AfterKernel);
        self.publish_replies(envelope, content.encoding, replies.collect(), content.is_list()).await?;
        failpoint::reach(Failpoint::AfterReply);
        let events: Vec<Event> = portion.jobs.iter().filter_map(|job| self.finished_event(job, envelope)).collect();
        let sink = self.events.clone();
        recording.spawn(async move {
            sink.send_confirmed(events).await?;
            failpoint::reach(Failpoint::AfterEvents);
            Ok(())
        });
        Ok(())
    }

    /// A job that has to come again leaves its message and travels alone; one that never will is kept for a person to see.
    async fn send_on(
        &self,
        envelope: &Envelope,
        content: &Content<'_, '_>,
        job: &Concluded<'_, '_>,
    ) -> Result<(), PublishError> {
        // The message may come again after a job has left it, a list above all: that job's attempts are numbered beyond the message's.
        let comes_again = content.is_list() || !envelope.is_live();
        let beyond = if comes_again { u32::try_from(DELIVERIES_MAX).unwrap_or(u32::MAX) } else { 0 };
        let next = envelope.attempt.saturating_add(beyond);
        let body = || content.of(job.task).to_vec();
        match &job.disposition {
            Disposition::Again { past, after, .. } => {
                // Nothing is lost by a gap, and by it one is known that had started ([`Envelope::may_have_started`]).
                let gap = u32::from(past.unavailable > envelope.past.unavailable && job.has_started());
                let again = Again { attempt: next.saturating_add(1 + gap), past: *past, after: *after };
                self.publish_task(envelope, job.task.job_id, body(), again).await
            }
            Disposition::Forward { history, to } => {
                let (job_id, past) = (job.task.job_id, envelope.past);
                let forwarded = Forwarded { attempt: next, past, history: *history, to: *to };
                self.publish_forwarded(envelope, job_id, body(), forwarded).await?;
                if let Destination::Class(_) = to {
                    self.metrics.job_forwarded(envelope.pool_id);
                }
                Ok(())
            }
            // The broker delivers the message again by itself.
            Disposition::HandBack if !envelope.is_live() => Ok(()),
            Disposition::HandBack => {
                let again = Again { attempt: next, past: envelope.past, after: None };
                self.publish_task(envelope, job.task.job_id, body(), again).await
            }
            Disposition::Final { dead_letter: Some(reason), .. } => self.publish_dead(envelope, body(), reason).await,
            Disposition::Final { dead_letter: None, .. } => Ok(()),
        }
    }

    /// Answers a message that can't be run, at its `reply_to` if its tasks name no client, and keeps it with the reason in the dead-letter queue.
    /// The reply is in the encoding that the message names, else in JSON, which needs no library to read.
    async fn refuse(&self, envelope: &Envelope, body: &[u8], failure: Failure) -> Result<Settlement, PublishError> {
        warn!(
            message_id = envelope.message_id(),
            code = failure.code.name(),
            reason = failure.message,
            "message dead-lettered"
        );
        self.metrics.message_refused(envelope.pool_id);
        let encoding = envelope.encoding().unwrap_or(Encoding::Json);
        let jobs = envelope.salvage(body);
        self.publish_dead(envelope, body.to_vec(), &failure.message).await?;
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
            };
            Some((job.reply.as_ref().or(reply_to.as_ref())?.clone(), reply))
        });
        self.publish_replies(envelope, encoding, replies.collect(), jobs.len() > 1).await?;
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
                printf_output: None,
            })
        });
        self.events.send_confirmed(events.collect()).await?;
        Ok(Settlement::Answered)
    }
}

fn unreadable(error: &DecodeError) -> Failure {
    let code = match error {
        DecodeError::UnsupportedVersion { .. } => FailureCode::UnsupportedVersion,
        DecodeError::Empty | DecodeError::Malformed { .. } | DecodeError::TooMany { .. } => FailureCode::MalformedTask,
    };
    Failure::new(Verdict::User, code, error.to_string())
}
