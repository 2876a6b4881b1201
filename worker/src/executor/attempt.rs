//! One attempt at a job: compiles its source, waits for its turn, sends it to the child, and waits for its end.

use std::{sync::Arc, time::Instant};

use gpufleet_schema::{Failure, FailureCode, Inline, Program, Verdict};

use super::{
    flight::Stop,
    handle::{Executor, ExecutorJob, Finished},
    moves::Moves,
    phase::{self, Phase, RequestSender},
    pieces::Ring,
    programs::Code,
    sent::{Staged, internal},
    staging::Layout,
};
use crate::{
    compiler::{Compiled, ProgramOrigin},
    ipc::slab::{SlabError, StagingMemory},
};

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
        let is_new = found.as_ref().is_some_and(|found| found.origin == ProgramOrigin::Compiler);
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
        let ring = layout.ring(job.task);
        let waiting = Instant::now();
        // While it waits here, the job holds no resource that others wait for.
        let turn = match job.printout {
            Some(printout) => Some(shared.unless_over(job.cancel, shared.printer.turn(printout)).await?),
            None => None,
        };
        // Every job takes inputs first, staging memory second and the stream last, so that jobs never wait for each other in a circle.
        let _claims = match ring {
            Some(_) => shared.unless_over(job.cancel, shared.inputs.claim(job.task.blobs())).await?,
            None => Vec::new(),
        };
        let bytes = layout.bytes + ring.map_or(0, Ring::bytes);
        let mut memory = shared.unless_over(job.cancel, shared.slab.take(bytes)).await?.map_err(no_staging)?;
        let (requests, moves) = ring.map(|ring| moves(ring, &layout, &mut memory)).unzip();
        let staged = Staged::new(shared, job, code, compiled, layout, memory)?;
        let streams = if job.alone { shared.streams_max } else { 1 };
        let permit =
            shared.unless_over(job.cancel, Arc::clone(&shared.streams).acquire_many_owned(streams as u32)).await?;
        let permit = Arc::new(permit.expect("the semaphore is never closed"));
        let phase = Phase::new(staged.run.has_inputs(), !staged.run.leaving.is_empty());
        let (mut passenger, ending, sent) = staged.depart(shared, waiting.elapsed(), &permit, phase);
        (passenger.pending.requests, passenger.pending.turn) = (requests, turn);
        shared.submit(vec![passenger])?;
        let (ended, moved) = self.ended(job, sent.id, ending, moves).await?;
        sent.finished(ended, moved)
    }
}

/// Creates the channel and the memory for a job that may move arrays. The memory follows that of the layout in the job's staging memory.
fn moves(ring: Ring, layout: &Layout, memory: &mut StagingMemory) -> (RequestSender, Moves) {
    let (sender, requests) = phase::requests();
    let lanes = ring.lanes(memory.split_off(layout.bytes));
    (sender, Moves { requests, lanes, leaving: layout.leaving.clone() })
}

pub(super) fn no_staging(error: SlabError) -> Stop {
    let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
    Stop::failed(internal(&format!("{error}{source}")))
}

/// Returns the code for the executor. A catalog program has a text of its own; a source is replaced by its compiled program.
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
        Program::Session { .. } | Program::Host(_) => Err(Failure::new(
            Verdict::User,
            FailureCode::InvalidTask,
            "an executor runs kernels, neither sessions nor host programs",
        )),
    }
}
