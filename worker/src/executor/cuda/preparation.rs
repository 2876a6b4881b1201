//! What a job needs before its first kernel: staging that is pinned, its module with the kernels, and memory.
//!
//! Where that is not at hand it is asked of the driver, and the driver may let such calls wait for the kernels that run. The supervisor is told
//! of a job that comes to this, since a time limit is for the job's own work. One that finds all it needs tells nothing.

use std::{collections::HashMap, sync::Arc};

use gpufleet_schema::{FailureCode, Verdict};

use super::{
    arena::{Allocation, Shortage, Wanted},
    stream::{Common, JobError, failed},
    module::{Function, Module},
    pinned::PinnedSegment,
    program::Program,
};
use crate::ipc::FromExecutor;

/// Of one job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Preparation<'a> {
    pub(super) common: &'a Common,
    pub(super) job: u64,
}

impl<'a> Preparation<'a> {
    /// Comes before every call that may have to wait for others' kernels.
    pub(super) fn may_wait(&self) {
        self.common.waits.waits(self.job);
    }

    /// Does what may need device memory, again as long as some can be found for it: what is kept for later goes first, then neighbours'.
    pub(super) fn with_room<T>(&self, mut step: impl FnMut() -> Result<T, JobError>) -> Result<T, JobError> {
        let memory = &self.common.memory;
        loop {
            let ended = memory.arena.ended();
            match step() {
                Err(JobError::Cuda(error)) if error.is_out_of_memory() => {
                    self.may_wait();
                    if !(memory.arena.give_up_kept()? || memory.shelf.unload_idle() || memory.arena.wait_past(ended)) {
                        return Err(error.into());
                    }
                }
                done => return done,
            }
        }
    }

    /// Pins what was not pinned before: the first job of a segment has that done.
    pub(super) fn pin(&self, segments: &HashMap<u32, Arc<PinnedSegment>>) {
        for (segment, pinned) in segments.iter().filter(|(_, pinned)| pinned.is_new()) {
            self.may_wait();
            if let Err(problem) = pinned.pin() {
                self.common.say(&FromExecutor::Unpinned { segment: *segment, reason: problem.to_string() });
            }
        }
    }

    /// The module for a job, and whether it was there before.
    pub(super) fn module(&self, program: &Arc<Program>) -> Result<(Arc<Module>, bool), JobError> {
        self.with_room(|| {
            if let Some(module) = program.kept() {
                return Ok((module, true));
            }
            self.may_wait();
            Ok(self.common.memory.shelf.module(program)?)
        })
    }

    /// A kernel. The driver may load its code only now.
    pub(super) fn function(&self, module: &Module, entry: &str) -> Result<Arc<Function>, JobError> {
        if let Some(function) = module.known(entry) {
            return Ok(function);
        }
        self.may_wait();
        Ok(module.function(&self.common.library, entry)?)
    }

    /// All memory of a job. What is kept beside it is bounded, for other executors may live on the rest.
    pub(super) fn allocate(&self, wanted: Wanted<'_>, kept_max: u64) -> Result<Allocation<'a>, JobError> {
        let memory = &self.common.memory;
        if memory.shelf.idle_bytes() > kept_max {
            self.may_wait();
            memory.shelf.unload_idle();
        }
        loop {
            let kept_max = kept_max.saturating_sub(memory.shelf.idle_bytes());
            match memory.arena.take(wanted, kept_max, || self.may_wait()) {
                Ok(allocation) => return Ok(allocation),
                Err(Shortage::Cuda(error)) => return Err(error.into()),
                Err(Shortage::OutOfMemory { .. }) if memory.shelf.unload_idle() => {}
                Err(Shortage::OutOfMemory { wanted, local, free }) => {
                    let kernels = match local {
                        0 => String::new(),
                        local => format!(" ({local} of them for the local memory of its kernels)"),
                    };
                    let message =
                        format!("the job needs {wanted} bytes of device memory{kernels}, but only {free} are free");
                    return failed(Verdict::OutOfMemory, FailureCode::OutOfMemory, message);
                }
            }
        }
    }
}
