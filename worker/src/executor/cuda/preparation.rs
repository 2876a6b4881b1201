//! Prepares a job's first kernel: pins staging memory, loads the module and its kernels, and allocates memory.
//!
//! Whatever is not cached needs driver calls, which may wait for running kernels. The executor reports a job before such a call, because a
//! time limit covers only the job's own work. A job that needs no such call is not reported.

use std::{collections::HashMap, sync::Arc};

use gpufleet_schema::{FailureCode, Verdict};

use super::{
    arena::{Allocation, MemoryRequest, Shortage},
    common::Common,
    ending::{StreamError, failed},
    module::{Function, Module},
    pinned::PinnedSegment,
    program::Program,
};

/// The preparation of one job.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaunchPreparation<'a> {
    pub(super) common: &'a Common,
    pub(super) job: u64,
}

impl<'a> LaunchPreparation<'a> {
    /// Reports that the job may wait. Must be called before every driver call that may wait for other jobs' kernels.
    pub(super) fn may_wait(&self) {
        self.common.waits.waits(self.job);
    }

    /// Runs a step that may need device memory, and repeats it as long as memory can be freed: first cached memory, then that of
    /// neighbours.
    pub(super) fn with_room<T>(&self, mut step: impl FnMut() -> Result<T, StreamError>) -> Result<T, StreamError> {
        let memory = &self.common.memory;
        loop {
            let ended = memory.arena.ended();
            match step() {
                Err(StreamError::Cuda(error)) if error.is_out_of_memory() => {
                    self.may_wait();
                    if !(memory.arena.give_up_kept()? || memory.shelf.unload_idle() || memory.arena.wait_past(ended)) {
                        return Err(error.into());
                    }
                }
                done => return done,
            }
        }
    }

    /// Pins the segments that are new.
    pub(super) fn pin(&self, segments: &HashMap<u32, Arc<PinnedSegment>>) {
        for (segment, pinned) in segments.iter().filter(|(_, pinned)| pinned.is_new()) {
            self.may_wait();
            self.common.pin(*segment, pinned);
        }
    }

    /// Returns the module for a job, and whether it was already loaded.
    pub(super) fn module(&self, program: &Arc<Program>) -> Result<(Arc<Module>, bool), StreamError> {
        self.with_room(|| {
            if let Some(module) = program.kept() {
                return Ok((module, true));
            }
            self.may_wait();
            Ok(self.common.memory.shelf.module(program)?)
        })
    }

    /// Returns a kernel. With lazy loading, the driver may load the kernel's code only now.
    pub(super) fn function(&self, module: &Module, entry: &str) -> Result<Arc<Function>, StreamError> {
        if let Some(function) = module.known(entry) {
            return Ok(function);
        }
        self.may_wait();
        Ok(module.function(&self.common.library, entry)?)
    }

    /// Allocates all memory of a job. Leaves at most `cache_bytes_max` in the cache, because other executors may need the rest.
    pub(super) fn allocate(
        &self,
        wanted: MemoryRequest<'_>,
        cache_bytes_max: u64,
    ) -> Result<Allocation<'a>, StreamError> {
        let memory = &self.common.memory;
        if memory.shelf.idle_bytes() > cache_bytes_max {
            self.may_wait();
            memory.shelf.unload_idle();
        }
        loop {
            let cache_bytes_max = cache_bytes_max.saturating_sub(memory.shelf.idle_bytes());
            match memory.arena.take(wanted, cache_bytes_max, || self.may_wait()) {
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
