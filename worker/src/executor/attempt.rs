//! One attempt at a job: compile its source, wait for its turn, send it to the child, bring its inputs, and wait for its end.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    time::{Duration, Instant},
};

use gpufleet_schema::{Buffer, Failure, FailureCode, Inline, Program, Task, Verdict};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{
    bringing::{WantedInput, bring},
    flight::{JobEnd, Pending, Shared, Stop},
    handle::{Executor, ExecutorJob, Finished, InputUse},
    pieces::{CopyError, Lane, Ring},
    programs::Code,
    staging::{BufferHeader, Layout},
    untrusted,
};
use crate::{
    compiler::{Compiled, Origin},
    ipc::{ToExecutor, slab::SlabError},
};

/// The inputs of a job that was sent to the child.
struct Inputs {
    wants: oneshot::Receiver<Vec<u32>>,
    lanes: Vec<Lane>,
}

/// Releases a job whose inputs do not come.
struct ReleaseOnDrop<'a> {
    shared: &'a Shared,
    job: u64,
}

impl Executor {
    pub(super) async fn attempt(&self, job: ExecutorJob<'_>) -> Result<Finished, Stop> {
        let shared = &self.shared;
        let compiling = Instant::now();
        let found = match &job.task.program {
            Program::Source { .. } if job.compiled.is_none() => {
                // Boxed, because this future is rarely used and large.
                let compiling = Box::pin(shared.compiled(job.task, job.pool));
                shared.unless_over(job.cancel, compiling).await??
            }
            _ => None,
        };
        let is_new = found.as_ref().is_some_and(|found| found.origin == Origin::Compiler);
        let compile_us = if is_new { compiling.elapsed().as_micros() as u64 } else { 0 };
        let compiled = job.compiled.or_else(|| found.as_ref().map(|found| &*found.compiled));
        let code = code(&job.task.program, compiled).map_err(Stop::failed)?;
        let mut finished = self.run_compiled(&job, code, compiled).await?;
        finished.timings.compile_us = compile_us;
        Ok(finished)
    }

    async fn run_compiled(
        &self,
        job: &ExecutorJob<'_>,
        code: Code<'_>,
        compiled: Option<&Compiled>,
    ) -> Result<Finished, Stop> {
        let shared = &self.shared;
        let layout = Layout::of(job.task).map_err(Stop::failed)?;
        let ring = Ring::of(job.task);
        let waiting = Instant::now();
        // A job that waits here holds no resource that others wait for.
        let turn = match job.printout {
            Some(printout) => Some(shared.unless_over(job.cancel, shared.printer.turn(printout)).await?),
            None => None,
        };
        // Always the inputs first, staging second and the stream last, so that jobs never wait for each other in a circle.
        let _claims = match ring {
            Some(_) => shared.unless_over(job.cancel, shared.inputs.claim(job.task.blobs())).await?,
            None => Vec::new(),
        };
        let bytes = layout.bytes + ring.map_or(0, Ring::bytes);
        let mut slot = shared.unless_over(job.cancel, shared.slab.take(bytes)).await?.map_err(no_staging)?;
        let lanes = ring.map(|ring| ring.lanes(slot.split_off(layout.bytes))).unwrap_or_default();
        let id = shared.next_job();
        let mut run = layout.stage(job.task, compiled, &mut slot, id).map_err(Stop::failed)?;
        let headers = BufferHeader::of(job.task);
        let entries = run.launches.iter().map(|launch| launch.symbol.clone()).collect();
        let streams = if job.alone { shared.streams_max } else { 1 };
        let permit =
            shared.unless_over(job.cancel, Arc::clone(&shared.streams).acquire_many_owned(streams as u32)).await?;
        let permit = permit.expect("the semaphore is never closed");
        let waited = waiting.elapsed();
        let slot = Arc::new(slot);
        let (answer, ending) = oneshot::channel();
        let (wanted, wants) = oneshot::channel();
        let pending = Pending {
            answer,
            wanted: ring.is_some().then_some(wanted),
            has_inputs: true,
            program: job.program.unwrap_or_else(|| code.key()),
            entries,
            turn,
            _slot: Arc::clone(&slot),
            _streams: permit,
        };
        let started = Instant::now();
        (run.job, run.cache_bytes_max, run.prints) = (id, job.cache_bytes_max, job.printout.is_some());
        shared.submit(run, pending, code, job.time_limit)?;
        let inputs = ring.map(|_| Inputs { wants, lanes });
        let (ended, inputs, fetched) = self.ended(job, id, ending, inputs).await?;
        match ended {
            JobEnd::Finished { outcome, timings } => {
                let (launches, device_bytes) = (job.task.launches.len(), shared.device.memory_bytes);
                let held = started.elapsed().saturating_sub(fetched);
                let mut timings = untrusted::timings(timings, held, launches, device_bytes);
                timings.fetch_us = fetched.as_micros() as u64;
                if timings.total_us == 0 {
                    timings.total_us = held.as_micros() as u64;
                }
                let outcome = outcome
                    .map(|()| layout.outputs(&headers, &slot))
                    .map_err(|failure| blame(failure, &job.task.program));
                Ok(Finished { outcome, timings, inputs, waited })
            }
            JobEnd::Released => {
                Err(Stop::failed(internal("the executor released a job that it was not asked to release")))
            }
            JobEnd::Cancelled => Err(Stop::Cancelled),
            JobEnd::Lost(loss) => Err(Stop::Lost(loss, true)),
        }
    }

    /// Waits for the end of a job in the child. Its inputs come first, which does not count towards its time limit.
    async fn ended(
        &self,
        job: &ExecutorJob<'_>,
        id: u64,
        ending: oneshot::Receiver<JobEnd>,
        inputs: Option<Inputs>,
    ) -> Result<(JobEnd, InputUse, Duration), Stop> {
        let shared = &self.shared;
        let Some(inputs) = inputs else {
            let ended = shared.wait(id, ending, job.time_limit, job.cancel).await;
            return Ok((ended, InputUse::default(), Duration::ZERO));
        };
        // While its inputs come, a cancelled job is released. Later it is killed with its executor.
        let kill = CancellationToken::new();
        let mut ended = pin!(shared.wait(id, ending, job.time_limit, &kill));
        let (mut inputs_used, mut fetched) = (
            InputUse { resident: job.task.buffers.iter().filter_map(Buffer::blob).count() as u64, brought: 0 },
            Duration::ZERO,
        );
        let Inputs { wants, lanes } = inputs;
        let wanted = tokio::select! {
            biased;
            ended = &mut ended => return Ok((ended, inputs_used, fetched)),
            () = job.cancel.cancelled() => Vec::new(),
            // Without an answer the child has all inputs.
            wanted = wants => wanted.unwrap_or_default(),
        };
        if !wanted.is_empty() {
            let started = Instant::now();
            inputs_used.brought = wanted.len() as u64;
            inputs_used.resident = inputs_used.resident.saturating_sub(inputs_used.brought);
            match self.inputs_brought(job, id, ended.as_mut(), wanted, lanes).await? {
                Some(ended) => return Ok((ended, inputs_used, fetched)),
                None => fetched = started.elapsed(),
            }
        }
        tokio::select! {
            biased;
            ended = &mut ended => return Ok((ended, inputs_used, fetched)),
            () = job.cancel.cancelled() => kill.cancel(),
        }
        Ok((ended.await, inputs_used, fetched))
    }

    /// Brings the inputs, and lets the job start. Returns the end of the job if that comes first.
    async fn inputs_brought(
        &self,
        job: &ExecutorJob<'_>,
        id: u64,
        ended: Pin<&mut impl Future<Output = JobEnd>>,
        wanted: Vec<u32>,
        lanes: Vec<Lane>,
    ) -> Result<Option<JobEnd>, Stop> {
        let shared = &self.shared;
        let release = ReleaseOnDrop { shared, job: id };
        shared.state().clocks.suspend(id, Instant::now());
        let wanted = wanted_inputs(job.task, &wanted)?;
        let brought = tokio::select! {
            biased;
            ended = ended => return Ok(Some(ended)),
            () = job.cancel.cancelled() => return Err(Stop::Cancelled),
            brought = bring(shared, job.blobs, id, wanted, lanes) => brought,
        };
        match brought {
            Ok(()) => {}
            Err(CopyError::Failed(failure)) => return Err(Stop::failed(failure)),
            Err(CopyError::Lost) => return Err(Stop::Lost(shared.lost().await, false)),
        }
        release.defuse();
        shared.go(id);
        Ok(None)
    }
}

impl ReleaseOnDrop<'_> {
    fn defuse(self) {
        std::mem::forget(self);
    }
}

impl Drop for ReleaseOnDrop<'_> {
    fn drop(&mut self) {
        self.shared.say(&ToExecutor::Release { job: self.job });
        // A child that does not release the job is killed at its time limit.
        self.shared.state().clocks.resume(self.job, Instant::now());
    }
}

/// The inputs in these buffers. The child must not ask for others, or for one twice.
fn wanted_inputs(task: &Task<'_>, buffers: &[u32]) -> Result<Vec<WantedInput>, Stop> {
    let mut sorted = buffers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let input = |index: &u32| {
        let (digest, bytes) = task.buffers.get(*index as usize)?.blob()?;
        Some(WantedInput { buffer: *index, digest, bytes })
    };
    let wanted: Option<Vec<_>> = sorted.iter().map(input).collect();
    wanted
        .filter(|wanted| wanted.len() == buffers.len())
        .ok_or_else(|| Stop::failed(internal("the executor asked for a buffer that is no input")))
}

fn internal(message: &str) -> Failure {
    Failure::new(Verdict::Infrastructure, FailureCode::Internal, message)
}

fn no_staging(error: SlabError) -> Stop {
    let (verdict, code) = match &error {
        SlabError::TooLarge { .. } => (Verdict::User, FailureCode::OutputTooLarge),
        SlabError::Segment(_) => (Verdict::Infrastructure, FailureCode::Internal),
    };
    let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
    Stop::failed(Failure::new(verdict, code, format!("could not {error}{source}")))
}

/// The code for the executor. A catalog program has its own text; a source is replaced by its compiled program.
pub(crate) fn code<'a>(program: &'a Program<'_>, compiled: Option<&'a Compiled>) -> Result<Code<'a>, Failure> {
    match program {
        Program::Catalog(name) => match gpufleet_kernels::catalog().get(name) {
            Some(kernel) => Ok(Code::Ptx(kernel.ptx())),
            None => Err(Failure::new(
                Verdict::User,
                FailureCode::UnknownKernel,
                format!("this worker's catalog has no kernel {name:?}"),
            )),
        },
        Program::Source { .. } => Ok(Code::of(compiled.expect("a source is compiled before it gets here"))),
        Program::Ptx(text) => Ok(Code::Ptx(text)),
        Program::Cubin(Inline::Bytes(bytes)) => Ok(Code::Cubin(bytes)),
        Program::Cubin(Inline::Numbers(_)) => Err(Failure::new(
            Verdict::User,
            FailureCode::InvalidTask,
            "program.cubin: a list of numbers is not accepted; use base64 in JSON, or bin in MessagePack",
        )),
    }
}

/// Changes the verdict for a catalog program that does not load, because that is not its user's fault.
fn blame(mut failure: Failure, program: &Program<'_>) -> Failure {
    if failure.code == FailureCode::LoadError && matches!(program, Program::Catalog(_)) {
        failure.verdict = Verdict::Infrastructure;
    }
    failure
}
