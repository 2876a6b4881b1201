//! One job from its task to the end of its attempt.

use std::{pin::pin, sync::Arc, time::Duration};

use gpufleet_schema::{Encoding, Event, FailureCode, JobInfo, PrintfOutput, RanOn, Started, Task, Timings};
use tokio::{sync::OwnedSemaphorePermit, time::timeout};
use tracing::{debug, warn};

use super::{
    Supervisor,
    admission::{Denied, Permit},
    arrays::JobOutput,
    clock::{micros, unix_ms},
    envelope::Envelope,
    orders::Watch,
    output_room::OutputRoom,
    preparing::{Prepared, cancelled},
};
use crate::{
    blobs,
    disposition::Ending,
    executor::{Executor, ExecutorJob, Finished, LostCause, Printout, RunError},
    failpoint::{self, Failpoint},
    scheduler::{Demand, DeviceId},
};

/// An attempt that has ended.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) ending: Ending,
    pub(super) outputs: Vec<JobOutput>,
    /// What its kernels printed, however it ended.
    pub(super) printed: Option<PrintfOutput>,
    pub(super) timings: Timings,
    pub(super) ran_on: Option<RanOn>,
    /// For what a job of a list returns, until it is answered.
    pub(super) room: Option<OwnedSemaphorePermit>,
    /// When it went to an executor, if it did.
    pub(super) started_ms: Option<i64>,
    /// It is proven that this job brought its executor down.
    is_deadly: bool,
}

/// How long a job that could start waits while not one order comes. A link that is back subscribes again at once; a broker that does not
/// bring up its stream of orders may never do so, and jobs go on without.
const ORDERS_PATIENCE: Duration = Duration::from_secs(10);

/// A job that ends sooner has no event of its start, because the event of its end tells it. One that runs longer is shown as running.
const START_TOLD_AFTER: Duration = Duration::from_millis(100);

impl Attempt {
    fn not_run(ending: Ending) -> Self {
        Self {
            ending,
            outputs: Vec::new(),
            printed: None,
            timings: Timings::default(),
            ran_on: None,
            room: None,
            started_ms: None,
            is_deadly: false,
        }
    }
}

impl Supervisor {
    /// Runs one job to the end of this attempt. Cancelled, a job that waits leaves the line, and one that runs goes on to its end or
    /// its time limit, its outcome dropped.
    pub(super) async fn attempt(
        &self,
        task: &Task<'_>,
        envelope: &Envelope,
        encoding: Encoding,
        list: Option<&OutputRoom>,
    ) -> Attempt {
        let queued = envelope.received.since_submission(task.submitted_ms);
        let submitted_ms = envelope.received.submission_ms(task, envelope.properties.timestamp);
        let watch = self.orders.watch(task, submitted_ms, envelope.user(self.own_user()));
        let mut attempt = match self.prepare_and_run(task, envelope, encoding, list, &watch).await {
            Ok(attempt) => attempt,
            Err(ending) => Attempt::not_run(ending),
        };
        if let Some(reason) = watch.reason().filter(|_| attempt.ending.can_be_cancelled()) {
            attempt.ending = Ending::Cancelled { reason };
        }
        attempt.timings.queue_us = micros(queued);
        attempt
    }

    async fn prepare_and_run(
        &self,
        task: &Task<'_>,
        envelope: &Envelope,
        encoding: Encoding,
        list: Option<&OutputRoom>,
        watch: &Watch,
    ) -> Result<Attempt, Ending> {
        let prepared = self.prepare(task, envelope, encoding, list.is_some(), watch).await?;
        let room = match list {
            Some(list) => Some(self.take_room(&prepared, list, watch).await?),
            None => None,
        };
        let (permit, device) = self.admit(&prepared, envelope, watch).await?;
        self.await_orders(&prepared, envelope, watch).await?;
        let attempt = self.run(&prepared, permit, device, envelope, watch).await;
        let attempt = match self.store_outputs(&prepared.task, attempt.outputs).await {
            Ok(outputs) => Attempt { outputs, ..attempt },
            Err(ending) => Attempt { ending, outputs: Vec::new(), ..attempt },
        };
        let room = room.filter(|_| !attempt.outputs.is_empty() || attempt.printed.is_some());
        Ok(Attempt { room, ..attempt })
    }

    /// Waits until there is room for what the job of a list returns, before it asks for a place: others can use that meanwhile.
    async fn take_room(
        &self,
        job: &Prepared<'_>,
        list: &OutputRoom,
        watch: &Watch,
    ) -> Result<OwnedSemaphorePermit, Ending> {
        let waiting = self.leaving.run_until_cancelled(watch.or_cancelled(list.take(job.reply_bytes)));
        job.queue_limit.unless_expired(waiting).await?.ok_or(Ending::HandedBack)?.ok_or_else(cancelled)
    }

    /// Waits for a place on a device.
    async fn admit(
        &self,
        job: &Prepared<'_>,
        envelope: &Envelope,
        watch: &Watch,
    ) -> Result<(Permit, DeviceId), Ending> {
        let waiting = watch.or_cancelled(self.admission.admit(job.demand));
        let admitted = match job.queue_limit.unless_expired(waiting).await?.ok_or_else(cancelled)? {
            Ok(admitted) => admitted,
            Err(Denied::HandedBack) => return Err(Ending::HandedBack),
            Err(Denied::PassedOn) => return Err(self.unmet_requirements(&job.task, job.needs_store, envelope).await),
            Err(Denied::TooLarge(too_large)) => {
                return Err(self.too_large(too_large, &job.task, job.needs_store, envelope).await);
            }
        };
        if !envelope.is_live() {
            // The broker has taken the message back while it waited here: it comes again, to us or to another.
            return Err(Ending::HandedBack);
        }
        job.queue_limit.check()?;
        // Others of its kind may have run while it waited.
        self.check_quarantine(envelope.pool_id, &job.task)?;
        Ok(admitted)
    }

    /// A worker that was cut off does not know what was cancelled meanwhile, until it has read the orders again. One that leaves starts
    /// nothing any more.
    async fn await_orders(&self, job: &Prepared<'_>, envelope: &Envelope, watch: &Watch) -> Result<(), Ending> {
        let reading = watch.or_cancelled(self.orders.all_known(ORDERS_PATIENCE));
        let reading = self.leaving.run_until_cancelled(reading);
        let all_known =
            job.queue_limit.unless_expired(reading).await?.ok_or(Ending::HandedBack)?.ok_or_else(cancelled)?;
        if !envelope.is_live() {
            return Err(Ending::HandedBack);
        }
        if !all_known {
            self.orders.go_on_without();
        }
        Ok(())
    }

    async fn run(
        &self,
        job: &Prepared<'_>,
        permit: Permit,
        device: DeviceId,
        envelope: &Envelope,
        watch: &Watch,
    ) -> Attempt {
        let running = envelope.credit.runs();
        let wait_us = micros(envelope.received.elapsed()).saturating_sub(job.programs.micros);
        let (slot, Demand { pool, bytes, alone, .. }) = (self.device(device), job.demand);
        let ran_on = slot.ran_on(self.config.name.clone());
        let _presence = slot.enter(pool, bytes);
        failpoint::reach(Failpoint::BeforeKernel);
        let Prepared { task, program, time_limit, .. } = job;
        let (program, time_limit, kept_max) = (*program, *time_limit, permit.kept_max);
        let (compiled, blobs) = (job.programs.of(slot.info.target()), self.blobs.as_ref());
        let (printout, cancel) = (job.demand.prints.then(Printout::default), watch.token());
        let printout = printout.as_ref();
        let on_device =
            ExecutorJob { task, pool, program, compiled, time_limit, alone, printout, kept_max, blobs, cancel };
        let (executor, told) = (slot.executor(pool), ran_on.clone());
        debug!(job_id = %task.job_id, attempt = envelope.attempt, device = told.device, "job started");
        let executing = async move {
            let attempt = run_on(executor, on_device, ran_on).await;
            if attempt.is_deadly {
                self.blame(pool, task);
            }
            if let Some(used_us) = charge(&attempt.timings) {
                permit.leave(used_us);
            }
            drop(running);
            attempt
        };
        let started_ms = unix_ms();
        let mut executing = pin!(executing);
        let mut attempt = match timeout(START_TOLD_AFTER, &mut executing).await {
            Ok(attempt) => attempt,
            Err(_still_running) => {
                self.tell_started(task, envelope, &told, started_ms);
                executing.await
            }
        };
        attempt.started_ms = Some(started_ms);
        attempt.timings.wait_us += wait_us;
        attempt.timings.compile_us = job.programs.micros;
        attempt.printed = printout.and_then(Printout::text);
        attempt
    }

    /// Hands over the event of a job's start if there is room for it. A job waits for no record, and its end tells the start again.
    fn tell_started(&self, task: &Task<'_>, envelope: &Envelope, ran_on: &RanOn, at_ms: i64) {
        let started = Started {
            job: self.job_info(task, envelope),
            attempt: envelope.attempt,
            worker: ran_on.worker.clone(),
            device: ran_on.device,
            ran_on: Some(ran_on.clone()),
            at_ms,
        };
        match self.events.offer(Event::Started(started)) {
            Ok(None) => {}
            Ok(Some(_no_room)) => {
                debug!(job_id = %task.job_id, "too many unconfirmed events, recording the start with the end")
            }
            Err(error) => warn!(job_id = %task.job_id, %error, "start not recorded"),
        }
    }

    pub(super) fn job_info(&self, task: &Task<'_>, envelope: &Envelope) -> JobInfo {
        let client = task.reply.as_ref().map(ToString::to_string).or_else(|| envelope.properties.reply_to.clone());
        let user_id = envelope.user(self.own_user()).map(str::to_owned);
        JobInfo { user_id, ..JobInfo::of(task, envelope.pool.clone(), envelope.priority, client) }
    }
}

async fn run_on(executor: Option<Arc<Executor>>, job: ExecutorJob<'_>, ran_on: RanOn) -> Attempt {
    let alone = job.alone;
    let result = match executor {
        Some(executor) => executor.run(job).await,
        None => {
            let reason = "the executor ended before the job started".to_owned();
            Err(RunError::Lost { cause: LostCause::Neighbour, reason, was_running: false })
        }
    };
    let is_deadly = is_deadly(&result, alone);
    let (ending, outputs, mut timings, waited) = match result {
        Ok(Finished { outcome: Ok(outputs), timings, waited }) => {
            (Ending::Succeeded, outputs.into_iter().map(JobOutput::Staged).collect(), timings, waited)
        }
        Ok(Finished { outcome: Err(failure), timings, waited }) if failure.code == FailureCode::OutOfMemory => {
            (Ending::ShortOfMemory(failure), Vec::new(), timings, waited)
        }
        Ok(Finished { outcome: Err(failure), timings, waited }) => {
            (blobs::ending(failure), Vec::new(), timings, waited)
        }
        Err(RunError::Cancelled) => {
            (Ending::Cancelled { reason: String::new() }, Vec::new(), Timings::default(), Duration::ZERO)
        }
        Err(RunError::Lost { cause, reason, was_running }) => {
            let suspect = was_running && is_suspicious(cause);
            (Ending::Lost { reason, suspect }, Vec::new(), Timings::default(), Duration::ZERO)
        }
    };
    timings.wait_us = micros(waited);
    Attempt { ending, outputs, printed: None, timings, ran_on: Some(ran_on), room: None, started_ms: None, is_deadly }
}

/// What a job's pool is charged for, where it is known: its work, and its wait for staging memory and for its blobs in a place that
/// others could have had.
fn charge(timings: &Timings) -> Option<u64> {
    let held_us = timings.wait_us.saturating_add(timings.fetch_us);
    (timings.total_us > 0).then(|| timings.total_us.saturating_add(held_us))
}

/// Whether a job that was running may be the reason for its executor's end.
fn is_suspicious(cause: LostCause) -> bool {
    match cause {
        // A kernel can make a device look sick. Either way the job's attempts are bounded.
        LostCause::Died | LostCause::Suspect | LostCause::Device => true,
        LostCause::Neighbour | LostCause::Stopped => false,
    }
}

/// A fault that was found to be the job's own, or an executor that died with nothing else in it. A device that is lost proves
/// nothing about the job.
fn is_deadly(result: &Result<Finished, RunError>, alone: bool) -> bool {
    match result {
        Ok(Finished { outcome: Err(failure), .. }) => failure.code == FailureCode::KernelFault,
        Err(RunError::Lost { cause: LostCause::Died | LostCause::Suspect, was_running, .. }) => alone && *was_running,
        Ok(_) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_pays_for_its_wait_for_staging_memory() {
        let timings = |total_us, wait_us| Timings { total_us, wait_us, fetch_us: 7, ..Timings::default() };
        assert_eq!(charge(&timings(1_000, 500)), Some(1_507));
        assert_eq!(charge(&timings(u64::MAX, 1)), Some(u64::MAX), "an executor may say anything");
        assert_eq!(charge(&timings(0, 500)), None, "then it pays for as long as the place was held");
    }
}
