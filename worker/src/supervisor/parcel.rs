//! One message from its delivery to its acknowledgement.
//!
//! ```text
//! opened ─▶ decoded ─▶ every job attempted ─▶ again / handed back: published as messages of their own ─┐
//!   │          │                           └▶ final: reply, dead letter where due ───────────────────────┼─▶ events ─▶ ack
//!   └──────────┴─ unreadable: answer, dead letter with the reason ────────────────────────────────────────┘
//! ```
//! Each arrow into `events` and `ack` waits for the broker's confirmation. If one does not come, the message is not
//! acknowledged: the broker delivers it again, its jobs run again, and the ledger keeps the first outcome.

use std::sync::Arc;

use futures::future::join_all;
use gpufleet_schema::{
    AttemptFinished, AttemptState, Batch, ClientName, DecodeError, Encoding, Event, Failure, FailureCode, PoolName,
    Priority, Reply, Task, Timings, Verdict, bounds::DELIVERIES_MAX,
};
use gpufleet_transport::{Acker, Delivery, PublishError, Settled};
use tracing::{debug, info, warn};

use super::{Supervisor, clock::unix_ms, envelope::Envelope, job::Attempt};
use crate::disposition::{Disposition, dispose};

/// What is to be done with the delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settlement {
    Ack,
    Requeue,
}

/// A job of the message, and what became of it.
struct Concluded<'a, 'b> {
    task: &'b Task<'a>,
    attempt: Attempt,
    disposition: Disposition,
}

impl Supervisor {
    /// Handles one message to its end.
    pub(super) async fn handle(self: Arc<Self>, delivery: Delivery, pool: PoolName, priority: Priority) {
        let (envelope, body, acker) = Envelope::open(delivery, &pool, priority);
        let settlement = self.process(&envelope, &body).await.unwrap_or_else(|error| {
            warn!(message_id = envelope.message_id(), %error, "outcome not confirmed, delivery returned");
            Settlement::Requeue
        });
        settle(acker, settlement, &envelope).await;
    }

    async fn process(&self, envelope: &Envelope, body: &[u8]) -> Result<Settlement, PublishError> {
        if envelope.delivery_count > DELIVERIES_MAX {
            let reason = format!("delivered {} times without an outcome", envelope.delivery_count);
            let failure = Failure::new(Verdict::Infrastructure, FailureCode::AttemptsExhausted, reason);
            return self.refuse(envelope, body, failure).await;
        }
        let readable = envelope.encoding().and_then(|encoding| Ok((encoding, envelope.reply_to()?)));
        let (encoding, reply_to) = match readable {
            Ok(readable) => readable,
            Err(reason) => {
                let failure = Failure::new(Verdict::User, FailureCode::MalformedTask, reason);
                return self.refuse(envelope, body, failure).await;
            }
        };
        match encoding.decode_tasks(body) {
            Ok(tasks) if tasks.is_empty() => Ok(Settlement::Ack),
            Ok(tasks) => self.run_all(envelope, encoding, reply_to, &tasks).await,
            Err(error) => self.refuse(envelope, body, unreadable(&error)).await,
        }
    }

    async fn run_all(
        &self,
        envelope: &Envelope,
        encoding: Encoding,
        reply_to: Option<ClientName>,
        tasks: &Batch<Task<'_>>,
    ) -> Result<Settlement, PublishError> {
        let concluded = join_all(tasks.iter().map(|task| self.conclude(task, envelope, encoding))).await;
        if concluded.iter().all(|job| job.disposition == Disposition::HandBack) {
            return Ok(Settlement::Requeue);
        }
        self.send_again(envelope, encoding, &concluded).await?;
        self.send_replies(envelope, encoding, reply_to, &concluded, matches!(tasks, Batch::Many(_))).await?;
        let events = concluded.iter().filter_map(|job| self.finished_event(job, envelope)).collect();
        self.events.send_confirmed(events).await?;
        Ok(Settlement::Ack)
    }

    async fn conclude<'a, 'b>(&self, task: &'b Task<'a>, envelope: &Envelope, encoding: Encoding) -> Concluded<'a, 'b> {
        let attempt = self.attempt(task, envelope, encoding).await;
        let disposition =
            dispose(attempt.ending.clone(), envelope.losses, task.limits.attempts_max(), envelope.delivery_count);
        match &disposition {
            Disposition::Final { state, failure: None, .. } => {
                debug!(job_id = %task.job_id, attempt = envelope.attempt, %state, "job ended");
            }
            Disposition::Final { state, failure: Some(failure), .. } => {
                let code = failure.code.name();
                info!(job_id = %task.job_id, attempt = envelope.attempt, %state, code, "job ended");
            }
            Disposition::Again { losses, failure } => {
                let reason = &failure.message;
                warn!(job_id = %task.job_id, attempt = envelope.attempt, losses, reason, "job is tried again");
            }
            Disposition::HandBack => debug!(job_id = %task.job_id, "job handed back"),
        }
        Concluded { task, attempt, disposition }
    }

    /// Jobs that have to come again leave their message and travel alone.
    async fn send_again(
        &self,
        envelope: &Envelope,
        encoding: Encoding,
        concluded: &[Concluded<'_, '_>],
    ) -> Result<(), PublishError> {
        for job in concluded {
            match &job.disposition {
                Disposition::Again { losses, .. } => {
                    self.publish_task(envelope, encoding, job.task, envelope.attempt.saturating_add(1), *losses)
                        .await?;
                }
                Disposition::HandBack => {
                    self.publish_task(envelope, encoding, job.task, envelope.attempt, envelope.losses).await?;
                }
                Disposition::Final { dead_letter: Some(reason), .. } => {
                    self.publish_dead(envelope, encoding, job.task, reason).await?;
                }
                Disposition::Final { dead_letter: None, .. } => {}
            }
        }
        Ok(())
    }

    async fn send_replies(
        &self,
        envelope: &Envelope,
        encoding: Encoding,
        reply_to: Option<ClientName>,
        concluded: &[Concluded<'_, '_>],
        as_list: bool,
    ) -> Result<(), PublishError> {
        let replies = concluded.iter().filter_map(|job| {
            let client = job.task.reply.clone().or_else(|| reply_to.clone())?;
            Some((client, job.reply(envelope.attempt)?))
        });
        self.publish_replies(envelope, encoding, replies.collect(), as_list).await
    }

    fn finished_event(&self, job: &Concluded<'_, '_>, envelope: &Envelope) -> Option<Event> {
        let (state, failure) = match &job.disposition {
            Disposition::Final { state, failure, .. } => (*state, failure.clone()),
            Disposition::Again { failure, .. } => (AttemptState::Lost, Some(failure.clone())),
            Disposition::HandBack => return None,
        };
        Some(Event::AttemptFinished(AttemptFinished {
            job_id: job.task.job_id,
            attempt: envelope.attempt,
            worker: self.config.name.clone(),
            device: job.attempt.ran_on.as_ref().map(|ran_on| ran_on.device),
            at_ms: unix_ms(),
            state,
            failure,
            output_bytes: job.attempt.outputs.iter().map(|output| output.bytes.len() as u64).sum(),
            timings: job.attempt.timings.clone(),
        }))
    }

    /// A message that can't be run: whoever can be told is told, and the message is kept, with the reason, for a person to see.
    async fn refuse(&self, envelope: &Envelope, body: &[u8], failure: Failure) -> Result<Settlement, PublishError> {
        warn!(
            message_id = envelope.message_id(),
            code = failure.code.name(),
            reason = failure.message,
            "message refused"
        );
        let encoding = envelope.encoding().unwrap_or(Encoding::Json);
        let jobs: Vec<_> = encoding.decode_heads(body).into_iter().filter_map(|head| head.job_id).collect();
        self.publish_dead_body(envelope, body.to_vec(), &failure.message).await?;
        if let Ok(Some(client)) = envelope.reply_to() {
            let replies = jobs.iter().map(|job_id| {
                (
                    client.clone(),
                    Reply {
                        version: gpufleet_schema::VERSION,
                        job_id: *job_id,
                        attempt: envelope.attempt,
                        state: AttemptState::Dead,
                        failure: Some(failure.clone()),
                        outputs: Vec::new(),
                        timings: Timings::default(),
                        ran_on: None,
                    },
                )
            });
            self.publish_replies(envelope, encoding, replies.collect(), jobs.len() > 1).await?;
        }
        let events = jobs.into_iter().map(|job_id| {
            Event::AttemptFinished(AttemptFinished {
                job_id,
                attempt: envelope.attempt,
                worker: self.config.name.clone(),
                device: None,
                at_ms: unix_ms(),
                state: AttemptState::Dead,
                failure: Some(failure.clone()),
                output_bytes: 0,
                timings: Timings::default(),
            })
        });
        self.events.send_confirmed(events.collect()).await?;
        Ok(Settlement::Ack)
    }
}

impl<'a> Concluded<'a, '_> {
    /// The reply, if the job is over.
    fn reply(&self, attempt: u32) -> Option<Reply<'_>> {
        let Disposition::Final { state, failure, .. } = &self.disposition else { return None };
        Some(Reply {
            version: gpufleet_schema::VERSION,
            job_id: self.task.job_id,
            attempt,
            state: *state,
            failure: failure.clone(),
            outputs: self.attempt.outputs.iter().map(|output| output.as_output()).collect(),
            timings: self.attempt.timings.clone(),
            ran_on: self.attempt.ran_on.clone(),
        })
    }
}

fn unreadable(error: &DecodeError) -> Failure {
    let code = match error {
        DecodeError::UnsupportedVersion { .. } => FailureCode::UnsupportedVersion,
        DecodeError::Empty | DecodeError::Malformed { .. } | DecodeError::TooMany { .. } => FailureCode::MalformedTask,
    };
    Failure::new(Verdict::User, code, error.to_string())
}

async fn settle(acker: Acker, settlement: Settlement, envelope: &Envelope) {
    let settled = match settlement {
        Settlement::Ack => acker.ack().await,
        Settlement::Requeue => acker.requeue().await,
    };
    match settled {
        Ok(Settled::Sent) => {}
        Ok(Settled::Stale) => {
            warn!(message_id = envelope.message_id(), "connection lost meanwhile, the broker will deliver again");
        }
        Err(error) => warn!(message_id = envelope.message_id(), %error, "delivery not settled"),
    }
}
