//! Prepares a job before it requests a slot: decides whether it may run, for how long, on which devices, and with how much memory.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use gpufleet_kernels::{Problem, ResolveError};
use gpufleet_schema::{Buffer, Failure, FailureCode, Program, Task, Verdict, bounds::PRINTF_OUTPUT_BYTES_MAX};

use super::{
    Supervisor,
    admission::foreign_client,
    arrays::{kept_inline_bytes, needs_store, reply_bytes},
    brief::brief_us,
    clock::micros,
    content::JobContent,
    envelope::Envelope,
    footprints::Footprint,
    handle::Input,
    held::HeldJob,
    long::is_long,
    prepared::{CompiledPrograms, OfCatalog, Ready, Resolved},
    task_queue::Route,
};
use crate::{
    compiler::{CompileRequest, ProgramOrigin},
    config::PoolSpec,
    dispatcher::JobNo,
    disposition::Ending,
    executor::{self, Code, ProgramKey},
    scheduler::{Allowed, Demand, PoolId},
};

impl Ready {
    /// Returns the input that says that the job can run.
    pub(super) fn prepared(self, job: JobNo) -> Input {
        Input::Prepared { job, demand: self.demand, reply_bytes: self.reply_bytes, held: HeldJob::Ready(self) }
    }
}

impl Supervisor {
    /// Prepares a job. Dropping the future ends a compilation or a check of blobs. Meanwhile the dispatcher handles the job's queue limit
    /// and its cancellation.
    pub(super) async fn prepare(self: Arc<Self>, job: JobContent) -> Result<Ready, Ending> {
        job.task().check().map_err(|invalid| user(FailureCode::InvalidTask, invalid.to_string()))?;
        self.check_policy(job.task(), job.envelope())?;
        match job.envelope().route {
            Route::Session => return self.prepare_session(job),
            Route::Program => return self.prepare_program(job).await,
            Route::Pool | Route::AffinitySlot(_) | Route::Class(_) => {}
        }
        let resolved = Resolved::try_new(job, resolved)?;
        let (task, job) = (resolved.task(), resolved.borrow_owner());
        let (envelope, encoding) = (job.envelope(), job.message.encoding);
        let (has_store, needs_store) = (self.blobs.is_some(), needs_store(task, encoding));
        if !has_store && needs_store {
            return Err(self.without_store(task, envelope).await);
        }
        let output_bytes = reply_bytes(task, encoding, has_store)?;
        executor::check_memory(task).map_err(Ending::Failed)?;
        let time_limit = self.time_limit(task, envelope)?;
        let allowed = self.allowed(&task.needs());
        if allowed.is_empty() {
            return Err(self.unmet_requirements(task, needs_store, envelope).await);
        }
        self.check_quarantine(envelope.pool_id, task)?;
        if task.blob_bytes() > 0 {
            self.check_blobs(task, envelope.pool_id).await?;
        }
        let programs = self.compile(task, envelope.pool_id, allowed).await?;
        let codes = codes(&task.program, &programs)?;
        let program = if let [(key, _)] = *codes { Some(key) } else { None };
        let footprints: Vec<_> = codes.iter().map(|(key, code)| self.footprints.of(*key, *code)).collect();
        let demand = Demand {
            pool: envelope.pool_id,
            priority: envelope.priority,
            bytes: self.device_bytes(task, allowed, &footprints),
            alone: envelope.past.losses > 0,
            prints: footprints.iter().any(|footprint| footprint.prints),
            allowed,
            input: task.largest_blob(),
            returnable: !job.message.is_list(),
            brief_us: None,
            is_long: is_long(&footprints, task.limits.time_limit_ms.map(Duration::from_millis)),
            session: None,
        };
        let is_simple = !demand.alone && !demand.prints && !needs_store;
        let brief_us = if is_simple { brief_us(task, demand.bytes, &footprints, time_limit) } else { None };
        let demand = Demand { brief_us, ..demand };
        let printed_bytes = if demand.prints { PRINTF_OUTPUT_BYTES_MAX as u64 } else { 0 };
        let reply_bytes = output_bytes.saturating_add(printed_bytes).saturating_add(kept_inline_bytes(task));
        let programs = programs.taken(&self.compiler);
        Ok(Ready { resolved, needs_store, reply_bytes, time_limit, demand, program, programs })
    }

    /// Checks the pool's policy, and that the reply goes to a client of the task's user.
    fn check_policy(&self, task: &Task<'_>, envelope: &Envelope) -> Result<(), Ending> {
        let expected = match &task.program {
            Program::Session { .. } => Some((Route::Session, "a session")),
            Program::Host(_) => Some((Route::Program, "a host program")),
            Program::Catalog(_) | Program::Source { .. } | Program::Ptx(_) | Program::Cubin(_) => None,
        };
        match (expected, envelope.route) {
            (Some((wanted, what)), route) if wanted != route => {
                let key = wanted.key(&envelope.pool, envelope.priority);
                let message = format!("the task is {what}, so its routing key must be {key}");
                return Err(user(FailureCode::InvalidTask, message));
            }
            (None, route @ (Route::Session | Route::Program)) => {
                let (found, needed) = (route, Route::Pool.key(&envelope.pool, envelope.priority));
                let found = found.key(&envelope.pool, envelope.priority);
                let message =
                    format!("the task runs kernels, so its routing key must be one like {needed}, not {found}");
                return Err(user(FailureCode::InvalidTask, message));
            }
            _ => {}
        }
        let client = task.reply.as_ref();
        if let Some(foreign) = client.and_then(|client| foreign_client(envelope.user.as_deref(), client)) {
            return Err(user(FailureCode::Policy, foreign));
        }
        let allow = self.pool_spec(envelope).allow;
        let checked = allow.check(&task.program, task.signature.as_ref(), &self.config.trusted_keys);
        checked.map_err(|forbidden| user(FailureCode::Policy, forbidden.to_string()))
    }

    /// Returns the job's time limit, and checks that the pool allows this limit and the queue limit.
    fn time_limit(&self, task: &Task<'_>, envelope: &Envelope) -> Result<Duration, Ending> {
        let times = &self.pool_spec(envelope).times;
        let checked = times.run_limit(&task.limits).and_then(|run| times.queue_limit(&task.limits).map(|_| run));
        checked.map_err(|too_long| user(FailureCode::Policy, too_long.to_string()))
    }

    pub(super) fn pool_spec(&self, envelope: &Envelope) -> &PoolSpec {
        &self.config.pools[envelope.pool_id.0 as usize]
    }

    /// Compiles CUDA C for every target that the job may run on. This happens before the job requests a slot, so that no device waits for a
    /// compiler.
    async fn compile(&self, task: &Task<'_>, pool: PoolId, allowed: Allowed) -> Result<CompiledPrograms, Ending> {
        let Program::Source { code, options } = &task.program else { return Ok(CompiledPrograms::default()) };
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
        let found =
            try_join_all(compilations).await.map_err(|error| Ending::Failed(Failure::from(error).in_program(code)))?;
        let is_new = found.iter().any(|(_, found)| found.origin == ProgramOrigin::Compiler);
        let compiled = found.into_iter().map(|(target, found)| (target, found.compiled)).collect();
        Ok(CompiledPrograms { compiled, micros: if is_new { micros(started.elapsed()) } else { 0 }, room: None })
    }

    /// Returns the maximum device memory that the job takes on one of the devices, in bytes: its buffers with the device's alignment, and
    /// its module.
    fn device_bytes(&self, task: &Task<'_>, allowed: Allowed, footprints: &[Footprint]) -> u64 {
        let devices = || self.devices.iter().filter(|device| allowed.has(device.id));
        let taken = |bytes| devices().map(|device| device.taken(bytes)).max().unwrap_or(bytes);
        let buffers = task.buffers.iter().filter_map(Buffer::bytes).map(taken);
        let buffers = buffers.fold(0, u64::saturating_add);
        let module = footprints.iter().map(|footprint| footprint.bytes).max().unwrap_or(0);
        buffers.saturating_add(module)
    }
}

/// Returns the code for the devices that the job may use, one for each target if it was compiled.
fn codes<'a>(program: &'a Program<'_>, programs: &'a CompiledPrograms) -> Result<Vec<(ProgramKey, Code<'a>)>, Ending> {
    let code = |compiled| {
        let code = executor::code(program, compiled).map_err(Ending::Failed)?;
        Ok((ProgramKey::of(program, code), code))
    };
    match program {
        Program::Source { .. } => programs.compiled.iter().map(|(_, compiled)| code(Some(&**compiled))).collect(),
        Program::Catalog(_) | Program::Ptx(_) | Program::Cubin(_) => Ok(vec![code(None)?]),
        Program::Session { .. } | Program::Host(_) => unreachable!("they are prepared by themselves"),
    }
}

/// Resolves the kernel of a checked catalog task. Large data is not copied.
pub(super) fn resolved(job: &JobContent) -> Result<OfCatalog<'_>, Ending> {
    if !matches!(job.task().program, Program::Catalog(_)) {
        return Ok(None);
    }
    let resolved = gpufleet_kernels::resolve(job.task().borrowed()).map_err(|problem| unresolved(&problem))?;
    resolved.check().map_err(|invalid| user(FailureCode::InvalidTask, invalid.to_string()))?;
    Ok(Some(Box::new(resolved)))
}

pub(super) fn user(code: FailureCode, message: String) -> Ending {
    Ending::Failed(Failure::new(Verdict::User, code, message))
}

fn unresolved(problem: &ResolveError) -> Ending {
    let code = match problem.problem() {
        Problem::UnknownKernel { .. } => FailureCode::UnknownKernel,
        _ => FailureCode::InvalidTask,
    };
    user(code, problem.to_string())
}
