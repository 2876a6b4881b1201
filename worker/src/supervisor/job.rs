//! One job from its task to the end of its attempt.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use gpufleet_kernels::{Problem, ResolveError};
use gpufleet_schema::{
    Encoding, Event, Failure, FailureCode, JobInfo, Limits, Program, RanOn, Started, Task, Timings, Verdict,
    bounds::MESSAGE_BYTES_MAX,
};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::{
    Supervisor,
    admission::Denied,
    clock::{micros, unix_ms},
    envelope::Envelope,
    orders::Watch,
    queue_limit::QueueLimit,
};
use crate::{
    compiler::{CompileRequest, Compiled, Origin},
    config::PoolSpec,
    disposition::Ending,
    executor::{self, Executor, ExecutorJob, Finished, LostCause, OutputBytes, RunError},
    failpoint::{self, Failpoint},
    scheduler::{Allowed, Demand},
};

/// An attempt that has ended.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) ending: Ending,
    pub(super) outputs: Vec<OutputBytes>,
    pub(super) timings: Timings,
    pub(super) ran_on: Option<RanOn>,
    /// It is proven that this job brought its executor down.
    is_deadly: bool,
}

/// What a job's source was compiled to, and the microseconds that it took: none for what was kept.
#[derive(Debug, Default)]
struct Programs {
    compiled: Vec<Arc<Compiled>>,
    micros: u64,
}

/// What a reply needs besides the outputs' bytes: names, timings, a failure's text.
const REPLY_OVERHEAD_BYTES: u64 = 256 << 10;

/// How long a job that could start waits for room among the events.
const START_RECORDED_WITHIN: Duration = Duration::from_secs(1);

impl Attempt {
    fn not_run(ending: Ending) -> Self {
        Self { ending, outputs: Vec::new(), timings: Timings::default(), ran_on: None, is_deadly: false }
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
        in_list: bool,
    ) -> Attempt {
        let queued = envelope.received.since_submission(task.submitted_ms);
        let watch = self.orders.watch(task, unix_ms());
        let mut attempt = match self.prepare_and_run(task, envelope, encoding, in_list, &watch).await {
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
        in_list: bool,
        watch: &Watch,
    ) -> Result<Attempt, Ending> {
        // Whoever waits here is woken by a cancellation; `attempt` then says so.
        let cancelled = || Ending::Cancelled { reason: String::new() };
        task.check().map_err(|invalid| user(FailureCode::InvalidTask, invalid.to_string()))?;
        self.check_policy(task, envelope)?;
        let plain = gpufleet_kernels::resolve(task.clone()).map_err(|problem| unresolved(&problem))?;
        plain.check().map_err(|invalid| user(FailureCode::InvalidTask, invalid.to_string()))?;
        check_reply_size(&plain, encoding)?;
        let (time_limit, queue_limit) = self.time_limits(&plain.limits, envelope)?;
        let queue_limit = QueueLimit::new(queue_limit, envelope.received, task.submitted_ms);
        let allowed = self.allowed(&plain.requires);
        if allowed.is_empty() {
            queue_limit.check()?;
            return Err(self.misfit(&plain.requires, envelope).await);
        }
        self.check_quarantine(envelope.pool_id, &plain)?;
        let compiled = watch.or_cancelled(self.compile(&plain.program, allowed)).await.ok_or_else(cancelled)??;
        let compile_us = compiled.micros;
        let bytes = self.device_bytes(&plain, allowed, &compiled)?;

        let (pool, priority) = (envelope.pool_id, envelope.priority);
        let alone = envelope.losses > 0;
        let demand = Demand { pool, priority, bytes, alone, allowed, returnable: !in_list };
        let admitted = queue_limit.unless_expired(watch.or_cancelled(self.admission.admit(demand))).await?;
        let (permit, device) = match admitted.ok_or_else(cancelled)? {
            Ok(granted) => granted,
            Err(Denied::HandedBack) => return Err(Ending::HandedBack),
            Err(Denied::PassedOn) => return Err(self.misfit(&plain.requires, envelope).await),
            Err(Denied::TooLarge(too_large)) => {
                let buffers = plain.device_bytes().expect("the check has added them up");
                return Err(self.too_large(too_large, buffers, envelope).await);
            }
        };
        if !envelope.is_live() {
            // The broker has taken the message back while it waited here: it comes again, to us or to another.
            return Err(Ending::HandedBack);
        }
        queue_limit.check()?;
        // Others of its kind may have run while it waited.
        self.check_quarantine(pool, &plain)?;
        let running = envelope.carried.runs();
        let wait_us = micros(envelope.received.elapsed()).saturating_sub(compile_us);
        let slot = self.device(device);
        let ran_on = slot.ran_on(self.config.name.clone());
        let _presence = slot.enter(pool, bytes);
        self.tell_started(task, envelope, &ran_on).await;
        failpoint::reach(Failpoint::BeforeKernel);
        let (task, kept_max, cancel) = (&plain, permit.kept_max, watch.token());
        let job = ExecutorJob { task, time_limit, alone, kept_max, cancel };
        let mut attempt = run_on(slot.executor(pool), job, ran_on).await;
        if attempt.is_deadly {
            self.blame(pool, &plain);
        }
        if attempt.timings.total_us > 0 {
            permit.leave(attempt.timings.total_us);
        }
        drop(running);
        attempt.timings.wait_us += wait_us;
        attempt.timings.compile_us = compile_us;
        Ok(attempt)
    }

    /// By the pool of the queue: its routing key is its producer's word.
    fn check_policy(&self, task: &Task<'_>, envelope: &Envelope) -> Result<(), Ending> {
        let allow = self.pool_spec(envelope).allow;
        let checked = allow.check(&task.program, task.signature.as_ref(), &self.config.trusted_keys);
        checked.map_err(|forbidden| user(FailureCode::Policy, forbidden.to_string()))
    }

    /// How long the job may run, and how long it may wait for that.
    fn time_limits(&self, limits: &Limits, envelope: &Envelope) -> Result<(Duration, Option<Duration>), Ending> {
        let times = &self.pool_spec(envelope).times;
        let both = times.run_limit(limits).and_then(|run| Ok((run, times.queue_limit(limits)?)));
        both.map_err(|too_long| user(FailureCode::Policy, too_long.to_string()))
    }

    fn pool_spec(&self, envelope: &Envelope) -> &PoolSpec {
        &self.config.pools[envelope.pool_id.0 as usize]
    }

    /// Compiles CUDA C for every kind of device that the job may get, before it asks for a place, so that no device waits for a compiler;
    /// the executor then finds the result in the shared cache.
    async fn compile(&self, program: &Program<'_>, allowed: Allowed) -> Result<Programs, Ending> {
        let Program::Source { code, options } = program else { return Ok(Programs::default()) };
        let started = Instant::now();
        let compilations = self.targets(allowed).into_iter().map(|target| {
            let code = code.clone().into_owned();
            self.compiler.compile(CompileRequest { code, options: options.clone(), target, nvrtc: None })
        });
        let found = try_join_all(compilations).await.map_err(|error| Ending::Failed(error.into()))?;
        let is_new = found.iter().any(|found| found.origin == Origin::Compiler);
        let compiled = found.into_iter().map(|found| found.compiled).collect();
        Ok(Programs { compiled, micros: if is_new { micros(started.elapsed()) } else { 0 } })
    }

    /// What the job takes of a device at most: its buffers, as the device cuts up its memory, and its module.
    fn device_bytes(&self, task: &Task<'_>, allowed: Allowed, compiled: &Programs) -> Result<u64, Ending> {
        let slots = || self.devices.iter().filter(|slot| allowed.has(slot.id));
        let taken = |bytes| slots().map(|slot| slot.taken(bytes)).max().unwrap_or(bytes);
        let buffers = task.buffers.iter().filter_map(gpufleet_schema::Buffer::bytes).map(taken);
        let buffers = buffers.fold(0, u64::saturating_add);
        let module = |compiled| {
            let code = executor::code(&task.program, compiled).map_err(Ending::Failed)?;
            Ok(self.footprints.of(code))
        };
        let module = match &task.program {
            Program::Source { .. } => {
                let modules: Result<Vec<u64>, Ending> =
                    compiled.compiled.iter().map(|compiled| module(Some(compiled))).collect();
                modules?.into_iter().max().unwrap_or(0)
            }
            Program::Catalog(_) | Program::Ptx(_) | Program::Cubin(_) => module(None)?,
        };
        Ok(buffers.saturating_add(module))
    }

    async fn tell_started(&self, task: &Task<'_>, envelope: &Envelope, ran_on: &RanOn) {
        debug!(job_id = %task.job_id, attempt = envelope.attempt, device = ran_on.device, "job started");
        let started = Started {
            job: self.job_info(task, envelope),
            attempt: envelope.attempt,
            worker: ran_on.worker.clone(),
            device: ran_on.device,
            ran_on: Some(ran_on.clone()),
            at_ms: unix_ms(),
        };
        // The record is no gate: where events can't leave, jobs go on without this one.
        match timeout(START_RECORDED_WITHIN, self.events.send(Event::Started(started))).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(job_id = %task.job_id, %error, "start not recorded"),
            Err(_) => warn!(job_id = %task.job_id, "start not recorded: too many events wait for the broker"),
        }
    }

    pub(super) fn job_info(&self, task: &Task<'_>, envelope: &Envelope) -> JobInfo {
        let client = task.reply.as_ref().map(ToString::to_string).or_else(|| envelope.properties.reply_to.clone());
        let user_id = envelope.user(self.broker.url().user()).map(str::to_owned);
        JobInfo { user_id, ..JobInfo::of(task, envelope.pool.clone(), envelope.priority, client) }
    }
}

async fn run_on(executor: Option<Arc<Executor>>, job: ExecutorJob<'_>, ran_on: RanOn) -> Attempt {
    let alone = job.alone;
    let result = match executor {
        Some(executor) => executor.run(job).await,
        None => {
            let reason = "the executor ended before the job reached it".to_owned();
            Err(RunError::Lost { cause: LostCause::Neighbour, reason, was_running: false })
        }
    };
    let is_deadly = is_deadly(&result, alone);
    let (ending, outputs, mut timings, waited) = match result {
        Ok(Finished { outcome: Ok(outputs), timings, waited }) => (Ending::Succeeded, outputs, timings, waited),
        Ok(Finished { outcome: Err(failure), timings, waited }) if failure.code == FailureCode::OutOfMemory => {
            (Ending::ShortOfMemory(failure), Vec::new(), timings, waited)
        }
        Ok(Finished { outcome: Err(failure), timings, waited }) => {
            (Ending::Failed(failure), Vec::new(), timings, waited)
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
    Attempt { ending, outputs, timings, ran_on: Some(ran_on), is_deadly }
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

fn user(code: FailureCode, message: String) -> Ending {
    Ending::Failed(Failure::new(Verdict::User, code, message))
}

fn unresolved(problem: &ResolveError) -> Ending {
    let code = match problem.problem() {
        Problem::UnknownKernel { .. } => FailureCode::UnknownKernel,
        _ => FailureCode::InvalidTask,
    };
    user(code, problem.to_string())
}

/// A result that no message can carry is refused before it is computed.
fn check_reply_size(task: &Task<'_>, encoding: Encoding) -> Result<(), Ending> {
    let outputs = task.outputs.iter().filter_map(|name| task.buffer(name)?.bytes());
    let bytes = outputs.fold(0_u64, u64::saturating_add);
    let encoded = match encoding {
        Encoding::MessagePack => bytes,
        // Base64.
        Encoding::Json => bytes.saturating_mul(4) / 3,
    };
    let max = MESSAGE_BYTES_MAX as u64 - REPLY_OVERHEAD_BYTES;
    if encoded <= max {
        return Ok(());
    }
    let message = format!(
        "the outputs take {encoded} bytes as {encoding}, a reply carries at most {max}; ask for fewer outputs or split the job"
    );
    Err(user(FailureCode::OutputTooLarge, message))
}
