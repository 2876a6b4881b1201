//! The inputs of one job that the device keeps beyond the job: those that are there from earlier jobs, and those that it brings.

use std::time::{Duration, Instant};

use cudarc::driver::sys::CUevent;
use gpufleet_schema::BlobDigest;

use super::{
    arena::{DeviceBuffer, InputLease},
    contents,
    preparation::LaunchPreparation,
    stream::{Stream, StreamError, Work},
};
use crate::ipc::{
    FromExecutor,
    message::{Contents, Place, Run},
};

/// The resident inputs that a job uses.
#[derive(Debug, Default)]
pub(super) struct JobInputs<'a>(Vec<InputLease<'a>>);

/// An input that is not resident yet, and its bytes in shared memory.
struct StagedInput {
    input: BlobDigest,
    bytes: u64,
    place: Place,
}

impl<'a> JobInputs<'a> {
    /// Leases what is resident. An error if the job counts on an input that was evicted.
    pub(super) fn lease(preparation: &LaunchPreparation<'a>, run: &Run) -> Result<Self, StreamError> {
        let wanted: Vec<_> = run.inputs().map(|(input, bytes, _)| (input, bytes)).collect();
        if wanted.is_empty() {
            return Ok(Self::default());
        }
        let arena = &preparation.common.memory.arena;
        let leased = Self(arena.lease_inputs(&wanted, run.cache_bytes_max, || preparation.may_wait())?);
        leased.check(run)?;
        Ok(leased)
    }

    /// Ends the leases, so that the memory of the inputs can be freed. An error if the job has no other copy of an input.
    pub(super) fn give_up(&mut self, run: &Run) -> Result<(), StreamError> {
        self.0.clear();
        self.check(run)
    }

    fn check(&self, run: &Run) -> Result<(), StreamError> {
        let is_gone = |input| self.source(input).is_none();
        match run.inputs().any(|(input, _, staged)| staged.is_none() && is_gone(input)) {
            true => Err(StreamError::InputGone),
            false => Ok(()),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The memory of an input, if it is resident.
    pub(super) fn source(&self, input: BlobDigest) -> Option<DeviceBuffer> {
        self.0.iter().find(|lease| lease.input == input).map(|lease| lease.block)
    }

    /// Copies the inputs that are not resident to memory in which they stay, as far as there is room. Returns the time of the copies.
    pub(super) fn bring(
        &mut self,
        stream: &Stream,
        preparation: &LaunchPreparation<'a>,
        work: &Work,
        copied: CUevent,
    ) -> Result<Duration, StreamError> {
        let mut time = Duration::ZERO;
        for (input, bytes, staged) in work.run.inputs() {
            if let Some(place) = staged.filter(|_| self.source(input).is_none()) {
                time += self.bring_one(stream, preparation, work, StagedInput { input, bytes, place }, copied)?;
            }
        }
        Ok(time)
    }

    fn bring_one(
        &mut self,
        stream: &Stream,
        preparation: &LaunchPreparation<'a>,
        work: &Work,
        StagedInput { input, bytes, place }: StagedInput,
        copied: CUevent,
    ) -> Result<Duration, StreamError> {
        let common = preparation.common;
        let memory = common.memory.arena.input_memory(bytes, work.run.cache_bytes_max, || preparation.may_wait())?;
        common.waits.calls(preparation.job);
        let Some(memory) = memory else {
            common.say(&FromExecutor::Input { input, bytes, is_resident: false });
            return Ok(Duration::ZERO);
        };
        let started = Instant::now();
        let enqueued = contents::copy_in(stream.raw(), work, place, bytes, memory.block);
        let enqueued = enqueued.and_then(|()| Ok(stream.record(Some(&copied))?));
        if let Err(error) = stream.end(preparation, enqueued, copied) {
            if error.is_fatal() {
                // An unusable context can't free anything.
                std::mem::forget(memory);
            }
            return Err(error);
        }
        common.waits.calls(preparation.job);
        self.0.push(common.memory.arena.keep_input(memory, input, bytes));
        common.say(&FromExecutor::Input { input, bytes, is_resident: true });
        Ok(started.elapsed())
    }
}

impl Run {
    /// Each input of the blob store with its length, and its place in shared memory if it is there.
    fn inputs(&self) -> impl Iterator<Item = (BlobDigest, u64, Option<Place>)> + '_ {
        self.buffers.iter().filter_map(|buffer| match buffer.contents {
            Contents::Input { input, staged } => Some((input, buffer.bytes, staged)),
            Contents::Zeros | Contents::Pattern(_) | Contents::Staged(_) => None,
        })
    }
}
