//! Prepares a job before it requests a slot: whether it may run, for how long, on which devices, and with how much memory.

use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use gpufleet_kernels::{Problem, ResolveError};
use gpufleet_schema::{
    Encoding, Failure, FailureCode, Limits, Program, Task, Verdict, bounds::PRINTF_OUTPUT_BYTES_MAX,
};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    Supervisor,
    arrays::{needs_store, reply_bytes},
    clock::micros,
    envelope::Envelope,
    footprints::Footprint,
    orders::Watch,
    queue_limit::QueueLimit,
};
use crate::{
    compiler::{CompileRequest, Compiled, Compiler, Origin, Target},
    config::PoolSpec,
    disposition::Ending,
    executor::{self, Code, Key},
    scheduler::{Allowed, Demand, PoolId},
};

/// A job that is ready to run once it gets a slot.
#[derive(Debug)]
pub(super) struct Prepared<'a> {
    /// The task with its catalog kernel resolved; any other task is borrowed from the message.
    pub(super) task: Cow<'a, Task<'a>>,
    /// Its inputs or outputs use the blob store.
    pub(super) needs_store: bool,
    /// The size of its outputs and printed text in a reply.
    pub(super) reply_bytes: u64,
    pub(super) time_limit: Duration,
    pub(super) queue_limit: QueueLimit,
    pub(super) demand: Demand,
    /// The key of its program, if all devices that it may use take the same code.
    pub(super) program: Option<Key>,
    pub(super) programs: Programs,
}

/// The programs compiled from a job's source for each target, with the compile time in microseconds; zero for cached programs.
#[derive(Debug, Default)]
pub(super) struct Programs {
    compiled: Vec<(Target, Arc<Compiled>)>,
    pub(super) micros: u64,
    /// Held while the job holds the programs.
    room: Option<OwnedSemaphorePermit>,
}

impl Programs {
    /// The programs that the job holds while it waits: none if waiting jobs already hold too many.
    fn taken(mut self, compiler: &Compiler) -> Self {
        self.room = compiler.room_for(self.compiled.iter().map(|(_, compiled)| &**compiled));
        if self.room.is_none() {
            self.compiled.clear();
        }
        self
    }

    pub(super) fn of(&self, target: Target) -> Option<&Compiled> {
        self.compiled.iter().find(|(of, _)| *of == target).map(|(_, compiled)| &**compiled)
    }
}

/// A cancellation wakes a waiting job; [`Supervisor::attempt`] then reports who cancelled it.
pub(super) fn cancelled() -> Ending {
    Ending::Cancelled { reason: String::new() }
}

impl Supervisor {
    pub(super) async fn prepare<'a>(
        &self,
        task: &'a Task<'_>,
        envelope: &Envelope,
        encoding: Encoding,
        in_list: bool,
        watch: &Watch,
    ) -> Result<Prepared<'a>, Ending> {
        task.check().map_err(|invalid| user(FailureCode::InvalidTask, invalid.to_string()))?;
        self.check_policy(task, envelope)?;
        let plain = plain(task)?;
        let (has_store, needs_store) = (self.blobs.is_some(), needs_store(&plain, encoding));
        if !has_store && needs_store {
            return Err(self.without_store(&plain, envelope).await);
        }
        let output_bytes = reply_bytes(&plain, encoding, has_store)?;
        executor::check_memory(&plain).map_err(Ending::Failed)?;
        let (time_limit, queue_limit) = self.time_limits(&plain.limits, envelope)?;
        let queue_limit =
            QueueLimit::new(queue_limit, envelope.may_have_started(), envelope.received, task.submitted_ms);
        let allowed = self.allowed(&plain.needs());
        if allowed.is_empty() {
            queue_limit.check()?;
            return Err(self.unmet_requirements(&plain, needs_store, envelope).await);
        }
        self.check_quarantine(envelope.pool_id, &plain)?;
        if plain.blob_bytes() > 0 {
            let checking = watch.or_cancelled(self.leaving.run_until_cancelled(self.check_blobs(&plain)));
            let checked = queue_limit.unless_expired(checking).await?.ok_or_else(cancelled)?;
            checked.ok_or(Ending::HandedBack)??;
        }
        let compiling = watch.or_cancelled(self.compile(&plain, envelope.pool_id, allowed));
        let programs = queue_limit.unless_expired(compiling).await?.ok_or_else(cancelled)??;
        let codes = codes(&plain.program, &programs)?;
        let program = if let [(key, _)] = *codes { Some(key) } else { None };
        let footprints: Vec<_> = codes.iter().map(|(key, code)| self.footprints.of(*key, *code)).collect();
        let demand = Demand {
            pool: envelope.pool_id,
            priority: envelope.priority,
            bytes: self.device_bytes(&plain, allowed, &footprints),
            alone: envelope.past.losses > 0,
            prints: footprints.iter().any(|footprint| footprint.prints),
            allowed,
            returnable: !in_list,
        };
        let printed_bytes = if demand.prints { PRINTF_OUTPUT_BYTES_MAX as u64 } else { 0 };
        let reply_bytes = output_bytes.saturating_add(printed_bytes);
        let programs = programs.taken(&self.compiler);
        Ok(Prepared { task: plain, needs_store, reply_bytes, time_limit, queue_limit, demand, program, programs })
    }

    /// Checks the policy of the queue's pool, because a producer chooses the routing key.
    fn check_policy(&self, task: &Task<'_>, envelope: &Envelope) -> Result<(), Ending> {
        let allow = self.pool_spec(envelope).allow;
        let checked = allow.check(&task.program, task.signature.as_ref(), &self.config.trusted_keys);
        checked.map_err(|forbidden| user(FailureCode::Policy, forbidden.to_string()))
    }

    /// The job's time limit and queue limit.
    fn time_limits(&self, limits: &Limits, envelope: &Envelope) -> Result<(Duration, Option<Duration>), Ending> {
        let times = &self.pool_spec(envelope).times;
        let both = times.run_limit(limits).and_then(|run| Ok((run, times.queue_limit(limits)?)));
        both.map_err(|too_long| user(FailureCode::Policy, too_long.to_string()))
    }

    pub(super) fn pool_spec(&self, envelope: &Envelope) -> &PoolSpec {
        &self.config.pools[envelope.pool_id.0 as usize]
    }

    /// Compiles CUDA C for every target that the job may run on, before it requests a slot, so that no device waits for a compiler;
    /// the executor gets the result with the job. A draining worker compiles nothing more and hands the job back.
    async fn compile(&self, task: &Task<'_>, pool: PoolId, allowed: Allowed) -> Result<Programs, Ending> {
        let Program::Source { code, options } = &task.program else { return Ok(Programs::default()) };
        let expressions = task.name_expressions();
        let started = Instant::now();
        let compilations = self.targets(allowed).into_iter().map(async |target| {
            let request = CompileRequest {
                code: code.to_string(),
                options: options.clone(),
                expressions: expressions.clone(),
                target,
                nvrtc: None,
            };
            self.compiler.compile_for(pool, request).await.map(|found| (target, found))
        });
        let found = self.leaving.run_until_cancelled(try_join_all(compilations)).await.ok_or(Ending::HandedBack)?;
        let found = found.map_err(|error| Ending::Failed(error.into()))?;
        let is_new = found.iter().any(|(_, found)| found.origin == Origin::Compiler);
        let compiled = found.into_iter().map(|(target, found)| (target, found.compiled)).collect();
        Ok(Programs { compiled, micros: if is_new { micros(started.elapsed()) } else { 0 }, room: None })
    }

    /// The most device memory that the job takes: its buffers with the device's alignment, and its module.
    fn device_bytes(&self, task: &Task<'_>, allowed: Allowed, footprints: &[Footprint]) -> u64 {
        let slots = || self.devices.iter().filter(|slot| allowed.has(slot.id));
        let taken = |bytes| slots().map(|slot| slot.taken(bytes)).max().unwrap_or(bytes);
        let buffers = task.buffers.iter().filter_map(gpufleet_schema::Buffer::bytes).map(taken);
        let buffers = buffers.fold(0, u64::saturating_add);
        let module = footprints.iter().map(|footprint| footprint.bytes).max().unwrap_or(0);
        buffers.saturating_add(module)
    }
}

/// The code for the executors of the devices that the job may use: one, or one for each target.
fn codes<'a>(program: &'a Program<'_>, programs: &'a Programs) -> Result<Vec<(Key, Code<'a>)>, Ending> {
    let code = |compiled| {
        let code = executor::code(program, compiled).map_err(Ending::Failed)?;
        Ok((code.key(), code))
    };
    match program {
        Program::Source { .. } => programs.compiled.iter().map(|(_, compiled)| code(Some(&**compiled))).collect(),
        Program::Catalog(_) | Program::Ptx(_) | Program::Cubin(_) => Ok(vec![code(None)?]),
    }
}

/// A checked task with its catalog kernel resolved. Large data is not copied.
fn plain<'a>(task: &'a Task<'_>) -> Result<Cow<'a, Task<'a>>, Ending> {
    if !matches!(task.program, Program::Catalog(_)) {
        return Ok(Cow::Borrowed(task));
    }
    let plain = gpufleet_kernels::resolve(task.borrowed()).map_err(|problem| unresolved(&problem))?;
    plain.check().map_err(|invalid| user(FailureCode::InvalidTask, invalid.to_string()))?;
    Ok(Cow::Owned(plain))
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
