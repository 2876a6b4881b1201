//! The inputs of one job from the blob store: those that are resident from earlier jobs, and those that the supervisor fetches.
//!
//! Once a job has all its memory, it requests the inputs that are not resident, and waits. Their pieces go to memory in which the input
//! will stay, if there is room for that, and otherwise to the job's own buffer. While an input is in memory that stays, a job whose kernels
//! only read it needs no buffer of its own for it.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use gpufleet_schema::BlobDigest;

use super::{
    arena::{Allocation, InputLease, InputMemory, RunInput},
    buffer::DeviceBuffer,
    ending::{StreamError, internal},
    error::CudaError,
    guard::Sealed,
    preparation::LaunchPreparation,
    residents::Access,
    stream::Stream,
    transfers::{Direction, Signal},
};
use crate::ipc::{
    FromExecutor,
    message::{BufferPlan, Contents, JobPlan},
};

/// The inputs of one job.
#[derive(Debug, Default)]
pub(super) struct JobInputs<'a> {
    held: Vec<Held<'a>>,
    coming: Vec<Coming<'a>>,
    /// The indices of the buffers whose contents have arrived.
    filled: Vec<u32>,
}

/// An input in device memory.
#[derive(Debug)]
enum Held<'a> {
    Resident(InputLease<'a>),
    /// Another job has made the same input resident in the meantime, so this copy will be freed with the job.
    Spare(RunInput, InputMemory<'a>),
}

/// An input that is not resident.
#[derive(Debug)]
struct Coming<'a> {
    input: RunInput,
    /// The memory in which it will stay. `None` if it goes to the job's buffer.
    memory: Option<InputMemory<'a>>,
}

/// The identity of an input: its digest, and its length, which a task may state wrongly.
type Key = (BlobDigest, u64);

/// The place of a buffer's contents.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    /// In the memory of an input, which the job uses as its buffer.
    InPlace,
    Resident(DeviceBuffer),
    /// Already in the buffer.
    Buffer,
}

impl<'a> JobInputs<'a> {
    /// Leases the resident inputs. For others that need no buffer if they stay, finds memory to stay in.
    pub(super) fn lease(preparation: &LaunchPreparation<'a>, run: &JobPlan) -> Result<Self, StreamError> {
        let wanted = run.inputs();
        if wanted.is_empty() {
            return Ok(Self::default());
        }
        let arena = &preparation.common.memory.arena;
        let leases = arena.lease_inputs(&wanted, run.cache_bytes_max, || preparation.may_wait())?;
        let mut inputs = Self { held: leases.into_iter().map(Held::Resident).collect(), ..Self::default() };
        for input in wanted.into_iter().filter(|input| input.share) {
            if !inputs.has(input.key())
                && let Some(memory) = input_memory(preparation, run, input.bytes)?
            {
                inputs.coming.push(Coming { input, memory: Some(memory) });
            }
        }
        Ok(inputs)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.coming.is_empty()
    }

    /// Releases all memory of inputs, so that it can be freed.
    pub(super) fn give_up(&mut self) {
        self.held.clear();
        self.coming.clear();
    }

    /// Returns the sizes of the buffers for which the job needs memory of its own, in bytes.
    pub(super) fn own_sizes(&self, run: &JobPlan) -> Vec<u64> {
        let own = run.buffers.iter().filter(|buffer| self.in_place(buffer).is_none());
        own.map(|buffer| buffer.bytes).collect()
    }

    /// Returns the memory of each buffer.
    pub(super) fn blocks(&self, run: &JobPlan, allocation: &Allocation<'_>) -> Vec<DeviceBuffer> {
        let mut own = allocation.blocks.iter().copied();
        let block = |buffer: &BufferPlan| self.in_place(buffer).or_else(|| own.next());
        run.buffers.iter().map_while(block).collect()
    }

    /// Returns the memory of the input that the job uses as this buffer, if it does.
    fn in_place(&self, buffer: &BufferPlan) -> Option<DeviceBuffer> {
        let input = buffer.input()?;
        let held = self.held.iter().find_map(|held| held.in_place(input));
        let coming = || self.coming.iter().find(|coming| coming.input.key() == input && coming.input.share);
        held.or_else(|| Some(coming()?.memory.as_ref()?.block))
    }

    /// Returns where a buffer gets its contents from.
    pub(super) fn source(&self, index: usize, buffer: &BufferPlan) -> Result<Source, StreamError> {
        if self.in_place(buffer).is_some() {
            return Ok(Source::InPlace);
        }
        if let Some(held) = self.held.iter().find(|held| Some(held.key()) == buffer.input()) {
            return Ok(Source::Resident(held.block()));
        }
        match self.filled.iter().any(|filled| *filled as usize == index) {
            true => Ok(Source::Buffer),
            false => internal(format!("buffer {index} has no contents")),
        }
    }

    /// Returns the inputs that the kernels read in place. They must be checked after the kernels even if the job fails.
    pub(super) fn shared(&self) -> Vec<Sealed> {
        self.leases().filter(|lease| lease.lent.access == Access::Shared).map(InputLease::sealed).collect()
    }

    /// Returns the inputs that the kernels may only read, in place or as a copy. If the job succeeds, all of these are checked, so that a
    /// kernel that writes to one always fails.
    pub(super) fn read_only(&self, run: &JobPlan, blocks: &[DeviceBuffer]) -> Vec<Sealed> {
        if self.held.is_empty() {
            return Vec::new();
        }
        let shared: Vec<Key> = run.inputs().iter().filter(|input| input.share).map(RunInput::key).collect();
        self.sealed(run, blocks, |lease| shared.contains(&lease.key()))
    }

    /// Returns the copies that must be checked before the kernels start.
    pub(super) fn copies_to_check(&self, run: &JobPlan, blocks: &[DeviceBuffer]) -> Vec<Sealed> {
        self.sealed(run, blocks, |lease| lease.lent.access == Access::CopiedAndChecked)
    }

    /// Returns the memory of the buffers with those resident inputs for which `is_wanted` is true.
    fn sealed(
        &self,
        run: &JobPlan,
        blocks: &[DeviceBuffer],
        is_wanted: impl Fn(&InputLease<'a>) -> bool,
    ) -> Vec<Sealed> {
        let sealed = |(buffer, block): (&BufferPlan, &DeviceBuffer)| {
            let lease = self.leases().find(|lease| Some(lease.key()) == buffer.input())?;
            is_wanted(lease).then(|| Sealed { block: *block, ..lease.sealed() })
        };
        run.buffers.iter().zip(blocks).filter_map(sealed).collect()
    }

    fn leases(&self) -> impl Iterator<Item = &InputLease<'a>> {
        self.held.iter().filter_map(|held| match held {
            Held::Resident(lease) => Some(lease),
            Held::Spare(..) => None,
        })
    }

    /// Returns whether the input is, or will be, in memory that stays.
    fn has(&self, input: Key) -> bool {
        let will_stay = |coming: &Coming<'_>| coming.input.key() == input && coming.memory.is_some();
        self.held.iter().any(|held| held.key() == input) || self.coming.iter().any(will_stay)
    }

    /// Finds memory in which the inputs that are not yet resident can stay.
    pub(super) fn make_room(&mut self, preparation: &LaunchPreparation<'a>, run: &JobPlan) -> Result<(), StreamError> {
        for input in run.inputs() {
            if self.has(input.key()) {
                continue;
            }
            let memory = input_memory(preparation, run, input.bytes)?;
            if memory.is_none() {
                // Report this at once, because other jobs wait for the input.
                let RunInput { digest, bytes, .. } = input;
                preparation.common.say(&FromExecutor::Input { input: digest, bytes, is_resident: false });
            }
            // The job already has a buffer of its own for it.
            self.coming.push(Coming { input: RunInput { share: false, ..input }, memory });
        }
        Ok(())
    }

    /// Requests the inputs that are not resident, and waits for them. Returns how long that took.
    pub(super) fn arrive(
        &mut self,
        preparation: &LaunchPreparation<'a>,
        stream: &Stream,
        run: &JobPlan,
        blocks: &[DeviceBuffer],
    ) -> Result<Duration, StreamError> {
        if self.coming.is_empty() {
            return Ok(Duration::ZERO);
        }
        let common = preparation.common;
        let started = Instant::now();
        let targets = self.targets(run, blocks);
        let buffers = targets.keys().copied().collect();
        let transfer = common.transfers.open(preparation.job, Direction::ToDevice, targets);
        common.waits.runs(preparation.job);
        common.say(&FromExecutor::Wants { job: preparation.job, buffers });
        let signal = transfer.wait();
        drop(transfer);
        if signal == Signal::Release {
            return Err(StreamError::Released);
        }
        self.settle(preparation, stream, run)?;
        common.tell_memory(|| preparation.may_wait())?;
        Ok(started.elapsed())
    }

    /// Returns the target of each buffer's pieces. An input without memory of its own goes to every buffer that has it.
    fn targets(&self, run: &JobPlan, blocks: &[DeviceBuffer]) -> HashMap<u32, DeviceBuffer> {
        let mut targets = HashMap::new();
        for Coming { input, memory } in &self.coming {
            match memory {
                Some(memory) => drop(targets.insert(input.buffer, memory.block)),
                None => targets.extend(run.buffers_of(input.key()).map(|buffer| (buffer, blocks[buffer as usize]))),
            }
        }
        targets
    }

    /// Makes those inputs resident that have memory to stay in.
    fn settle(&mut self, preparation: &LaunchPreparation<'a>, stream: &Stream, run: &JobPlan) -> Result<(), CudaError> {
        let common = preparation.common;
        for Coming { input, memory } in std::mem::take(&mut self.coming) {
            let Some(memory) = memory else {
                self.filled.extend(run.buffers_of(input.key()));
                continue;
            };
            let RunInput { digest, bytes, .. } = input;
            let checksum = common.guard.seal(stream, memory.block, bytes)?;
            let kept = common.memory.arena.keep_input(memory, input, checksum);
            self.held.push(kept.map_or_else(|memory| Held::Spare(input, memory), Held::Resident));
            common.say(&FromExecutor::Input { input: digest, bytes, is_resident: true });
        }
        Ok(())
    }
}

impl Held<'_> {
    fn key(&self) -> Key {
        match self {
            Self::Resident(lease) => lease.key(),
            Self::Spare(input, _) => input.key(),
        }
    }

    fn block(&self) -> DeviceBuffer {
        match self {
            Self::Resident(lease) => lease.lent.block,
            Self::Spare(_, memory) => memory.block,
        }
    }

    fn in_place(&self, input: Key) -> Option<DeviceBuffer> {
        let is_in_place = match self {
            Self::Resident(lease) => lease.lent.access == Access::Shared,
            Self::Spare(spare, _) => spare.share,
        };
        (is_in_place && self.key() == input).then(|| self.block())
    }
}

impl RunInput {
    fn key(&self) -> Key {
        (self.digest, self.bytes)
    }
}

impl BufferPlan {
    fn input(&self) -> Option<Key> {
        match self.contents {
            Contents::Input { digest, .. } => Some((digest, self.bytes)),
            Contents::Zeros | Contents::Pattern(_) | Contents::Staged(_) => None,
        }
    }
}

impl InputLease<'_> {
    fn key(&self) -> Key {
        (self.input, self.bytes)
    }

    fn sealed(&self) -> Sealed {
        Sealed { block: self.lent.block, bytes: self.bytes, checksum: self.lent.checksum }
    }
}

fn input_memory<'a>(
    preparation: &LaunchPreparation<'a>,
    run: &JobPlan,
    bytes: u64,
) -> Result<Option<InputMemory<'a>>, CudaError> {
    preparation.common.memory.arena.input_memory(bytes, run.cache_bytes_max, || preparation.may_wait())
}

impl JobPlan {
    /// Returns the inputs from the blob store, each once.
    fn inputs(&self) -> Vec<RunInput> {
        let mut inputs: Vec<RunInput> = Vec::new();
        for (buffer, plan) in (0..).zip(&self.buffers) {
            let Contents::Input { digest, share } = plan.contents else { continue };
            match inputs.iter_mut().find(|input| input.key() == (digest, plan.bytes)) {
                Some(input) => input.share &= share,
                None => inputs.push(RunInput { buffer, digest, bytes: plan.bytes, share }),
            }
        }
        inputs
    }

    fn buffers_of(&self, input: Key) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.buffers).filter(move |(_, plan)| plan.input() == Some(input)).map(|(buffer, _)| buffer)
    }
}
