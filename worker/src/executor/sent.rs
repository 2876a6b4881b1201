//! The steps that a job takes alone or in a train: it is staged, sent to the child, and finished with the child's answer.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use gpufleet_schema::{Failure, FailureCode, Program, Verdict};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    flight::{JobEnd, Passenger, Pending, Shared, Stop},
    handle::{ExecutorJob, Finished},
    moves::Moved,
    phase::Phase,
    programs::Code,
    staging::{BufferHeader, Layout},
    untrusted,
};
use crate::{
    compiler::Compiled,
    ipc::{message::JobPlan, slab::StagingMemory},
};

/// A job whose inline inputs are in staging memory.
pub(super) struct Staged<'a> {
    pub run: JobPlan,
    job: ExecutorJob<'a>,
    code: Code<'a>,
    layout: Layout,
    memory: StagingMemory,
}

/// A job that was sent to the child.
#[derive(Debug)]
pub(super) struct Sent {
    pub id: u64,
    is_catalog: bool,
    launches: usize,
    layout: Layout,
    headers: Vec<BufferHeader>,
    memory: Arc<StagingMemory>,
    waited: Duration,
    started: Instant,
    device_bytes: u64,
}

/// The child's answer to a job that was sent.
pub(super) type Ending = oneshot::Receiver<JobEnd>;

impl<'a> Staged<'a> {
    pub(super) fn new(
        shared: &Shared,
        job: &ExecutorJob<'a>,
        code: Code<'a>,
        compiled: Option<&Compiled>,
        layout: Layout,
        mut memory: StagingMemory,
    ) -> Result<Self, Stop> {
        let mut run = layout.stage(job.task, compiled, &mut memory, shared.next_job()).map_err(Stop::failed)?;
        (run.cache_bytes_max, run.prints) = (job.cache_bytes_max, job.printout.is_some());
        Ok(Self { run, job: *job, code, layout, memory })
    }

    /// Returns what is sent, and what is kept until the answer. The job has `waited` for its staging memory and stream.
    pub(super) fn depart(
        self,
        shared: &Arc<Shared>,
        waited: Duration,
        stream: &Arc<OwnedSemaphorePermit>,
        phase: Phase,
    ) -> (Passenger<'a>, Ending, Sent) {
        let Self { run, job, code, layout, memory } = self;
        let (memory, (answer, ending)) = (Arc::new(memory), oneshot::channel());
        job.progress.iter().for_each(|progress| progress.sent(shared, run.job));
        let pending = Pending {
            answer,
            phase,
            requests: None,
            program: job.program.unwrap_or_else(|| code.key()),
            entries: run.launches.iter().map(|launch| launch.symbol.clone()).collect(),
            progress: job.progress.cloned(),
            turn: None,
            _memory: Arc::clone(&memory),
            _stream: Arc::clone(stream),
            next: None,
        };
        let sent = Sent {
            id: run.job,
            is_catalog: matches!(job.task.program, Program::Catalog(_)),
            launches: run.launches.len(),
            layout,
            headers: BufferHeader::of(job.task),
            memory,
            waited,
            started: Instant::now(),
            device_bytes: shared.device.memory_bytes,
        };
        (Passenger { run, pending, code, time_limit: job.time_limit }, ending, sent)
    }
}

impl Sent {
    /// Returns the result of the job, given the child's answer and the arrays that have moved.
    pub(super) fn finished(self, ended: JobEnd, moved: Moved) -> Result<Finished, Stop> {
        let (outcome, said) = match ended {
            JobEnd::Finished { outcome, timings } => (outcome, timings),
            JobEnd::Released => {
                let message = "the executor released a job that it was not asked to release";
                return Err(Stop::failed(internal(message)));
            }
            JobEnd::Cancelled => return Err(Stop::Cancelled),
            JobEnd::Lost(loss) => return Err(Stop::Lost(loss, true)),
        };
        let Moved { inputs, fetching, stored, storing } = moved;
        let held = self.started.elapsed().saturating_sub(fetching + storing);
        let behind = Duration::from_micros(said.wait_us).min(held);
        let held = held - behind;
        let mut timings = untrusted::timings(said, held, self.launches, self.device_bytes);
        timings.fetch_us = fetching.as_micros() as u64;
        if timings.total_us == 0 {
            timings.total_us = held.as_micros() as u64;
        }
        let outcome = outcome.map_err(|failure| self.blame(failure));
        let outcome = outcome.and_then(|()| self.layout.outputs(&self.headers, &self.memory, &stored));
        Ok(Finished { outcome, timings, inputs, waited: self.waited, behind, storing })
    }

    /// Changes the verdict for a catalog program that does not load, because that is not its user's fault.
    fn blame(&self, mut failure: Failure) -> Failure {
        if failure.code == FailureCode::LoadError && self.is_catalog {
            failure.verdict = Verdict::Infrastructure;
        }
        failure
    }
}

pub(super) fn internal(message: &str) -> Failure {
    Failure::new(Verdict::Infrastructure, FailureCode::Internal, message)
}
