//! Runs a job on a device, from its slot to the end of its attempt.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::future::join_all;
use gpufleet_schema::{Event, FailureCode, Program, RanOn, Started, Task, Timings};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    Supervisor,
    arrays::JobOutput,
    attempt_result::AttemptResult,
    clock::{micros, unix_ms},
    envelope::Envelope,
    failing_line,
    handle::Input,
    held::HeldJob,
    prepared::Ready,
    progress::Reporter,
};
use crate::{
    blobs,
    dispatcher::{AttemptEnd, JobNo, Unfit},
    disposition::Ending,
    executor::{Executor, ExecutorJob, Finished, InputUse, JobProgress, LostCause, Printout, RunError},
    failpoint::{self, Failpoint},
    scheduler::ExecutorId,
};

/// The result of a job on an executor.
struct ExecutorResult {
    ending: Ending,
    outputs: Vec<JobOutput>,
    timings: Timings,
    inputs: InputUse,
    /// The time for which it waited for the jobs before it in its train.
    behind: Duration,
    /// The time that its outputs took from the device to the blob store.
    storing: Duration,
    /// Whether it is proven that this job killed its executor.
    is_deadly: bool,
}

/// A job that goes to a device with others, and the token that cancels it.
pub(super) struct Boarding {
    pub(super) job: JobNo,
    pub(super) ready: Ready,
    pub(super) cancel: CancellationToken,
}

/// A job that has gone to a device.
struct Begun {
    ran_on: RanOn,
    /// The time until then in which it waited, in microseconds.
    wait_us: u64,
    started_ms: i64,
}

/// How an attempt ended on a device, with the device time to charge in microseconds, if it was measured. `None` if the job came back
/// without a run.
type Attempted = Option<(AttemptResult, Ending, Option<u64>)>;

/// Run time after which a job's start is recorded by itself, so that the job is shown as running. For a shorter job, the event of its end
/// is enough.
const START_TOLD_AFTER: Duration = Duration::from_millis(100);

impl AttemptResult {
    /// Returns the input that ends the attempt.
    pub(super) fn ended(self, job: JobNo, ending: Ending) -> Input {
        self.left(job, ending, None)
    }

    /// Returns the input that ends an attempt which used a device for `used_us`, if that is known.
    pub(super) fn left(self, job: JobNo, ending: Ending, used_us: Option<u64>) -> Input {
        let printed_bytes = self.printed.as_ref().map_or(0, |printed| printed.text.len());
        let bytes = self.outputs.iter().map(JobOutput::inline_bytes).sum::<usize>() + printed_bytes;
        let returns = !self.outputs.is_empty() || self.printed.is_some();
        let bytes = bytes + failure_bytes(&ending);
        Input::Ended(job, Box::new(AttemptEnd { ending, bytes, returns, used_us }), HeldJob::Ended(self))
    }
}

impl Supervisor {
    /// Runs a prepared job.
    pub(super) async fn run_job(
        &self,
        job: JobNo,
        ready: Ready,
        executor: ExecutorId,
        cache_bytes_max: u64,
        cancel: &CancellationToken,
    ) -> Input {
        // Other jobs with this program may have killed executors while it waited.
        if let Err(ending) = self.check_quarantine(ready.envelope().pool_id, ready.task()) {
            return AttemptResult::default().ended(job, ending);
        }
        let begun = self.begin_run(&ready, executor);
        let worker_device = self.device(executor.device);
        let _presence = worker_device.enter(ready.demand.pool, ready.demand.bytes);
        failpoint::reach(Failpoint::BeforeKernel);
        let (progress, printout) = (JobProgress::of(ready.task()), ready.demand.prints.then(Printout::default));
        let mut reporter = Reporter::new(progress.clone(), printout.clone());
        let on_device = self.on_device(&ready, executor, cache_bytes_max, printout.as_ref(), &progress, cancel);
        let running = run_on(worker_device.executor(executor), on_device);
        let running = async { Some(running.await) };
        let attempted = self.attend(&ready, begun, printout.as_ref(), &mut reporter, running).await;
        self.conclude(job, ready, &mut reporter, attempted).await
    }

    /// Runs brief jobs of one pool in one slot, one after the other. Each reports its end by itself.
    pub(super) async fn run_train(&self, train: Vec<Boarding>, executor: ExecutorId, cache_bytes_max: u64) {
        let admitted = |boarding: Boarding| match self
            .check_quarantine(boarding.ready.envelope().pool_id, boarding.ready.task())
        {
            Ok(()) => {
                let reporter = Reporter::new(JobProgress::of(boarding.ready.task()), None);
                Some((self.begin_run(&boarding.ready, executor), reporter, boarding))
            }
            Err(ending) => {
                self.dispatcher.tell(AttemptResult::default().ended(boarding.job, ending));
                None
            }
        };
        let train: Vec<_> = train.into_iter().filter_map(admitted).collect();
        if train.is_empty() {
            return;
        }
        let worker_device = self.device(executor.device);
        let _presence =
            worker_device.enter(executor.pool, train.iter().map(|(.., boarding)| boarding.ready.demand.bytes).sum());
        failpoint::reach(Failpoint::BeforeKernel);
        let Some(process) = worker_device.executor(executor) else {
            for (begun, mut reporter, Boarding { job, ready, .. }) in train {
                let running = async { Some(Err(executor_ended())) };
                let attempted = self.attend(&ready, begun, None, &mut reporter, running).await;
                self.dispatcher.tell(self.conclude(job, ready, &mut reporter, attempted).await);
            }
            return;
        };
        let jobs = train.iter().map(|(_, reporter, Boarding { ready, cancel, .. })| {
            self.on_device(ready, executor, cache_bytes_max, None, reporter.progress(), cancel)
        });
        let mut riders = process.depart(&jobs.collect::<Vec<_>>()).await;
        process.arrive(&mut riders).await;
        let endings = train.into_iter().zip(riders).map(async |((begun, mut reporter, boarding), rider)| {
            let Boarding { job, ready, .. } = boarding;
            let attempted = self.attend(&ready, begun, None, &mut reporter, process.finish(rider)).await;
            self.dispatcher.tell(self.conclude(job, ready, &mut reporter, attempted).await);
        });
        join_all(endings).await;
    }

    /// Stores the outputs of a job that has left its device, as far as it asks for that. Those of a job in a list are copied, so that it
    /// holds no staging memory.
    async fn conclude(&self, job: JobNo, ready: Ready, reporter: &mut Reporter, attempted: Attempted) -> Input {
        let Some((mut attempt, mut ending, mut used_us)) = attempted else {
            return Input::Returned { job, held: HeldJob::Ready(ready) };
        };
        if !attempt.outputs.is_empty() {
            if self.stores_outputs(ready.task()) {
                // Other jobs can use the slot while the outputs are stored.
                self.dispatcher.tell(Input::Stopped { job, used_us: used_us.take() });
            }
            let outputs = std::mem::take(&mut attempt.outputs);
            let storing = self.store_outputs(ready.task(), outputs);
            match reporter.while_storing(&self.progress, &ready, storing).await {
                Ok(stored) => (attempt.outputs, attempt.kept) = stored,
                Err(unavailable) => ending = unavailable,
            }
        }
        if ready.is_in_list() {
            attempt.outputs = attempt.outputs.into_iter().map(JobOutput::copied).collect();
        }
        attempt.left(job, ending, used_us)
    }

    /// Looks for another worker for a job that no device here can run, or for the reason to fail it.
    pub(super) async fn forward_job(&self, job: JobNo, ready: Ready, unfit: Unfit) -> Input {
        let (task, envelope) = (ready.task(), ready.envelope());
        let ending = match unfit {
            unfit if ready.demand.session.is_some() => self.session_elsewhere(unfit, task, envelope),
            Unfit::NoDevice => self.unmet_requirements(task, ready.needs_store, envelope).await,
            Unfit::TooLarge(too_large) => self.too_large(too_large, task, ready.needs_store, envelope).await,
            Unfit::NoRoom => unreachable!("only sessions lose patience"),
        };
        AttemptResult::default().ended(job, ending)
    }

    fn begin_run(&self, job: &Ready, executor: ExecutorId) -> Begun {
        let (task, envelope) = (job.task(), job.envelope());
        let wait_us = micros(envelope.received.elapsed()).saturating_sub(job.programs.micros);
        let ran_on = self.device(executor.device).ran_on(self.config.name.clone());
        debug!(job_id = %task.job_id, attempt = envelope.attempt, device = ran_on.device, executor = executor.index, "job started");
        Begun { ran_on, wait_us, started_ms: unix_ms() }
    }

    fn on_device<'a>(
        &'a self,
        job: &'a Ready,
        executor: ExecutorId,
        cache_bytes_max: u64,
        printout: Option<&'a Printout>,
        progress: &'a JobProgress,
        cancel: &'a CancellationToken,
    ) -> ExecutorJob<'a> {
        ExecutorJob {
            task: job.task(),
            pool: job.demand.pool,
            program: job.program,
            compiled: job.programs.of(self.device(executor.device).info.target()),
            time_limit: job.time_limit,
            alone: job.demand.alone,
            printout,
            progress: Some(progress),
            cache_bytes_max,
            blobs: self.blobs.as_ref(),
            cancel,
        }
    }

    /// Follows a job on a device to its end.
    async fn attend(
        &self,
        job: &Ready,
        begun: Begun,
        printout: Option<&Printout>,
        reporter: &mut Reporter,
        running: impl Future<Output = Option<Result<Finished, RunError>>>,
    ) -> Attempted {
        let (task, envelope) = (job.task(), job.envelope());
        let Begun { ran_on, wait_us, started_ms } = begun;
        let mut running = pin!(running);
        let result = match timeout(START_TOLD_AFTER, &mut running).await {
            Ok(run) => run,
            Err(_still_running) => {
                self.tell_started(task, envelope, &ran_on, started_ms);
                reporter.during(&self.progress, job, running).await
            }
        };
        let ExecutorResult { mut ending, outputs, mut timings, inputs, behind, storing, is_deadly } =
            ExecutorResult::of(result?, job.demand.alone, &task.program);
        reporter.explain(&mut ending);
        if is_deadly {
            self.blame(job.demand.pool, task);
        }
        if let Some(program) = job.program.filter(|_| timings.total_us > 0) {
            self.footprints.has_run(program, timings.total_us);
        }
        self.metrics.inputs_used(job.demand.pool, inputs);
        let used_us = charge(&timings, storing);
        timings.wait_us += wait_us + micros(behind);
        timings.compile_us = job.programs.micros;
        let printed = printout.and_then(Printout::text);
        let (ran_on, started_ms) = (Some(ran_on), Some(started_ms + behind.as_millis() as i64));
        let attempt = AttemptResult {
            outputs,
            printed,
            timings,
            ran_on,
            started_ms,
            charged_us: used_us,
            ..AttemptResult::default()
        };
        Some((attempt, ending, used_us))
    }

    /// Returns the event of a job's start.
    pub(super) fn started(&self, task: &Task<'_>, envelope: &Envelope, ran_on: &RanOn, at_ms: i64) -> Started {
        Started {
            job: self.job_info(task, envelope),
            attempt: envelope.attempt,
            worker: ran_on.worker.clone(),
            device: ran_on.device,
            ran_on: Some(ran_on.clone()),
            at_ms,
        }
    }

    /// Sends the event of a job's start if there is room for it. If not, the event of its end will record the start.
    pub(super) fn tell_started(&self, task: &Task<'_>, envelope: &Envelope, ran_on: &RanOn, at_ms: i64) {
        match self.events.offer(Event::Started(self.started(task, envelope, ran_on, at_ms))) {
            Ok(None) => {}
            Ok(Some(_no_room)) => {
                debug!(job_id = %task.job_id, "too many unconfirmed events, recording the start with the end")
            }
            Err(error) => warn!(job_id = %task.job_id, %error, "start not recorded"),
        }
    }
}

async fn run_on(executor: Option<Arc<Executor>>, job: ExecutorJob<'_>) -> Result<Finished, RunError> {
    match executor {
        Some(executor) => executor.run(job).await,
        None => Err(executor_ended()),
    }
}

fn executor_ended() -> RunError {
    let reason = "the executor ended before the job started".to_owned();
    RunError::Lost { cause: LostCause::Neighbour, reason, was_running: false }
}

impl ExecutorResult {
    fn of(result: Result<Finished, RunError>, alone: bool, program: &Program<'_>) -> Self {
        let is_deadly = is_deadly(&result, alone);
        let (inputs, behind, storing) =
            result.as_ref().map_or_else(|_| Default::default(), |done| (done.inputs, done.behind, done.storing));
        let (ending, outputs, mut timings, waited) = match result {
            Ok(Finished { outcome: Ok(outputs), timings, waited, .. }) => {
                (Ending::Succeeded, outputs.into_iter().map(JobOutput::from).collect(), timings, waited)
            }
            Ok(Finished { outcome: Err(failure), timings, waited, .. }) if failure.code == FailureCode::OutOfMemory => {
                (Ending::ShortOfMemory(failure), Vec::new(), timings, waited)
            }
            Ok(Finished { outcome: Err(failure), timings, waited, .. }) => {
                (blobs::ending(failing_line::quoted(failure, program)), Vec::new(), timings, waited)
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
        Self { ending, outputs, timings, inputs, behind, storing, is_deadly }
    }
}

/// Returns the device time to charge to a job's pool in microseconds, if it was measured: the job's work, and its waits for staging memory
/// and the blob store while it held a slot that others could have used.
fn charge(timings: &Timings, storing: Duration) -> Option<u64> {
    let held_us = timings.wait_us.saturating_add(timings.fetch_us).saturating_add(micros(storing));
    (timings.total_us > 0).then(|| timings.total_us.saturating_add(held_us))
}

/// Returns the size of a failure's texts, in bytes.
fn failure_bytes(ending: &Ending) -> usize {
    match ending {
        Ending::Failed(failure) | Ending::ShortOfMemory(failure) | Ending::Unavailable { failure, .. } => {
            failure.text_bytes()
        }
        Ending::Lost { reason, .. } | Ending::Cancelled { reason } => reason.len(),
        Ending::Succeeded | Ending::Expired { .. } | Ending::Forwarded { .. } | Ending::HandedBack => 0,
    }
}

/// Returns whether a running job may be the cause of its executor's loss.
fn is_suspicious(cause: LostCause) -> bool {
    match cause {
        // A kernel can make a device look defective. Either way, the number of the job's attempts is limited.
        LostCause::Died | LostCause::Suspect | LostCause::Device => true,
        LostCause::Neighbour | LostCause::Stopped => false,
    }
}

/// Returns whether the job certainly killed its executor: the fault was found to be its own, or the executor died while no other job ran.
/// The loss of a device proves nothing about the job.
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
    fn a_pool_pays_for_its_wait_for_staging_memory_and_the_blob_store() {
        let timings = |total_us, wait_us| Timings { total_us, wait_us, fetch_us: 7, ..Timings::default() };
        let storing = Duration::from_micros(20);
        assert_eq!(charge(&timings(1_000, 500), storing), Some(1_527));
        assert_eq!(charge(&timings(u64::MAX, 1), storing), Some(u64::MAX), "an executor may say anything");
        assert_eq!(charge(&timings(0, 500), storing), None, "then it pays for as long as the slot was held");
    }
}
