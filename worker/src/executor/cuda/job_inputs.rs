//! The inputs of one job from the blob store: those that are resident from earlier jobs, and those that come from the supervisor.
//!
//! A job asks for what is not resident once it has all its memory, and waits. The pieces go to memory in which the input stays, if there
//! is room for it, and otherwise to the job's own buffer.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use gpufleet_schema::{BlobDigest, FailureCode, Verdict};

use super::{
    arena::{Allocation, DeviceBuffer, InputLease, InputMemory},
    copier::Direction,
    preparation::LaunchPreparation,
    stream::{StreamError, failed},
    transfers::Signal,
};
use crate::ipc::{
    FromExecutor,
    message::{Contents, Run},
};

/// The inputs of one job.
#[derive(Debug, Default)]
pub(super) struct JobInputs<'a> {
    leases: Vec<InputLease<'a>>,
    coming: Vec<Coming<'a>>,
    /// The buffers that have their contents.
    filled: Vec<u32>,
}

/// An input that is not resident.
#[derive(Debug)]
struct Coming<'a> {
    buffer: u32,
    input: BlobDigest,
    bytes: u64,
    /// Where it stays; without it, it goes to the buffer.
    memory: Option<InputMemory<'a>>,
}

impl<'a> JobInputs<'a> {
    /// Leases what is resident.
    pub(super) fn lease(preparation: &LaunchPreparation<'a>, run: &Run) -> Result<Self, StreamError> {
        let wanted: Vec<_> = run.inputs().map(|(_, input, bytes)| (input, bytes)).collect();
        if wanted.is_empty() {
            return Ok(Self::default());
        }
        let arena = &preparation.common.memory.arena;
        let leases = arena.lease_inputs(&wanted, run.cache_bytes_max, || preparation.may_wait())?;
        Ok(Self { leases, ..Self::default() })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// Ends the leases, so that the memory of the inputs can be freed.
    pub(super) fn give_up(&mut self) {
        self.leases.clear();
    }

    /// The memory of an input, if it is resident.
    pub(super) fn source(&self, input: BlobDigest) -> Option<DeviceBuffer> {
        self.leases.iter().find(|lease| lease.input == input).map(|lease| lease.block)
    }

    /// An error unless the buffer has got its contents.
    pub(super) fn check_filled(&self, buffer: usize) -> Result<(), StreamError> {
        match self.filled.iter().any(|filled| *filled as usize == buffer) {
            true => Ok(()),
            false => failed(Verdict::Infrastructure, FailureCode::Internal, format!("buffer {buffer} has no contents")),
        }
    }

    /// Finds memory in which the inputs that are not resident may stay.
    pub(super) fn make_room(&mut self, preparation: &LaunchPreparation<'a>, run: &Run) -> Result<(), StreamError> {
        let common = preparation.common;
        for (buffer, input, bytes) in run.inputs() {
            let will_stay = |coming: &Coming<'_>| coming.input == input && coming.memory.is_some();
            if self.source(input).is_some() || self.coming.iter().any(will_stay) {
                continue;
            }
            let memory = common.memory.arena.input_memory(bytes, run.cache_bytes_max, || preparation.may_wait())?;
            if memory.is_none() {
                // Told at once, because other jobs wait for it.
                common.say(&FromExecutor::Input { input, bytes, is_resident: false });
            }
            self.coming.push(Coming { buffer, input, bytes, memory });
        }
        Ok(())
    }

    /// Waits until the inputs are there. Returns how long that took.
    pub(super) fn arrive(
        &mut self,
        preparation: &LaunchPreparation<'a>,
        allocation: &Allocation<'a>,
    ) -> Result<Duration, StreamError> {
        if self.coming.is_empty() {
            return Ok(Duration::ZERO);
        }
        let common = preparation.common;
        let started = Instant::now();
        let targets: HashMap<u32, DeviceBuffer> =
            self.coming.iter().map(|coming| (coming.buffer, coming.target(allocation))).collect();
        let buffers = targets.keys().copied().collect();
        let transfer = common.transfers.open(preparation.job, Direction::ToDevice, targets);
        common.waits.runs(preparation.job);
        common.say(&FromExecutor::Wants { job: preparation.job, buffers });
        let signal = transfer.wait();
        drop(transfer);
        if signal == Signal::Release {
            return Err(StreamError::Released);
        }
        self.settle(preparation);
        common.tell_memory(|| preparation.may_wait())?;
        Ok(started.elapsed())
    }

    /// Makes resident what has memory to stay in.
    fn settle(&mut self, preparation: &LaunchPreparation<'a>) {
        let common = preparation.common;
        for Coming { buffer, input, bytes, memory } in std::mem::take(&mut self.coming) {
            match memory {
                Some(memory) => {
                    self.leases.push(common.memory.arena.keep_input(memory, input, bytes));
                    common.say(&FromExecutor::Input { input, bytes, is_resident: true });
                }
                None => self.filled.push(buffer),
            }
        }
    }
}

impl Coming<'_> {
    fn target(&self, allocation: &Allocation<'_>) -> DeviceBuffer {
        match &self.memory {
            Some(memory) => memory.block,
            None => allocation.blocks[self.buffer as usize],
        }
    }
}

impl Run {
    /// Each input of the blob store: its buffer, its digest and its length.
    fn inputs(&self) -> impl Iterator<Item = (u32, BlobDigest, u64)> + '_ {
        (0..).zip(&self.buffers).filter_map(|(index, buffer)| match buffer.contents {
            Contents::Input(input) => Some((index, input, buffer.bytes)),
            Contents::Zeros | Contents::Pattern(_) | Contents::Staged(_) => None,
        })
    }
}
