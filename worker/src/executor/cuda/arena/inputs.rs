//! The memory of inputs that stay on the device after their jobs, so that later jobs need not fetch them again.
//!
//! This memory is a part of the cache: the supervisor limits it, and may request it back. When memory is short, plain cached blocks are
//! freed first.

use gpufleet_schema::BlobDigest;

use super::{Arena, State};
use crate::executor::cuda::{
    buffer::DeviceBuffer,
    error::CudaError,
    residents::{Lent, NewInput},
};

/// An input that a job requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunInput {
    /// The index of the first buffer with this input.
    pub buffer: u32,
    pub digest: BlobDigest,
    pub bytes: u64,
    /// Whether the kernels only read the input, in all buffers that have it.
    pub share: bool,
}

/// The use of a resident input by a job. Dropping it ends the use; the stream that reads the input must have finished its work.
#[derive(Debug)]
pub(crate) struct InputLease<'a> {
    pub input: BlobDigest,
    pub bytes: u64,
    pub lent: Lent,
    arena: &'a Arena,
}

/// Memory in which an input can stay. Dropping it moves the memory to the cache; no copy to it may be in progress.
#[derive(Debug)]
pub(crate) struct InputMemory<'a> {
    pub block: DeviceBuffer,
    arena: &'a Arena,
}

impl Arena {
    /// Lends a job those of its inputs that are resident. Before that, frees what exceeds `cache_bytes_max`, these inputs last, because the
    /// rest of the device belongs to other executors. Calls `may_wait` before any driver call.
    pub(crate) fn lease_inputs(
        &self,
        inputs: &[RunInput],
        cache_bytes_max: u64,
        may_wait: impl FnOnce(),
    ) -> Result<Vec<InputLease<'_>>, CudaError> {
        let mut state = self.state();
        inputs.iter().for_each(|wanted| state.residents.touch(wanted.digest));
        let surplus = state.surplus(cache_bytes_max);
        let leased = inputs.iter().filter_map(|wanted| {
            let RunInput { digest, bytes, share, .. } = *wanted;
            let lent = state.residents.lease(digest, bytes, share)?;
            Some(InputLease { input: digest, bytes, lent, arena: self })
        });
        let leased = leased.collect();
        if !surplus.is_empty() {
            may_wait();
            self.free_as_neighbour(state, &surplus)?;
        }
        Ok(leased)
    }

    /// Returns memory for an input that is not resident, or `None` if there is no room besides that for jobs. Calls `may_wait` before any
    /// driver call.
    pub(crate) fn input_memory(
        &self,
        bytes: u64,
        cache_bytes_max: u64,
        may_wait: impl FnOnce(),
    ) -> Result<Option<InputMemory<'_>>, CudaError> {
        let bytes = self.sizes.taken(bytes);
        let Some(others_max) = self.resident_bytes_max.min(cache_bytes_max).checked_sub(bytes) else { return Ok(None) };
        let mut state = self.state();
        while state.residents.bytes() > others_max {
            let Some(oldest) = state.residents.evict_oldest() else { return Ok(None) };
            state.cache(oldest);
        }
        if let Some(block) = state.reuse(bytes) {
            return Ok(Some(self.arriving(&mut state, block)));
        }
        drop(state);
        may_wait();
        let _asking = self.asking();
        let mut state = self.state();
        let surplus = state.surplus(cache_bytes_max - bytes);
        let fits = state.kept_bytes() <= cache_bytes_max - bytes;
        self.free_as_neighbour(state, &surplus)?;
        if fits { self.allocate_input(bytes) } else { Ok(None) }
    }

    fn allocate_input(&self, bytes: u64) -> Result<Option<InputMemory<'_>>, CudaError> {
        let mut blocks = [None];
        self.allocate_missing(&[bytes], &mut blocks)?;
        Ok(blocks[0].map(|block| self.arriving(&mut self.state(), block)))
    }

    fn arriving(&self, state: &mut State, block: DeviceBuffer) -> InputMemory<'_> {
        state.used_bytes -= block.bytes;
        state.arriving_bytes += block.bytes;
        InputMemory { block, arena: self }
    }

    /// Makes the input in this memory resident, and lends it to its job. If another job has made the same input resident in the meantime,
    /// the error is the memory.
    pub(crate) fn keep_input<'a>(
        &'a self,
        memory: InputMemory<'a>,
        RunInput { digest, bytes, share, .. }: RunInput,
        checksum: u64,
    ) -> Result<InputLease<'a>, InputMemory<'a>> {
        let mut state = self.state();
        let new = NewInput { block: memory.block, bytes, checksum, share };
        let Some(lent) = state.residents.insert(digest, new) else {
            drop(state);
            return Err(memory);
        };
        state.arriving_bytes -= memory.block.bytes;
        drop(state);
        std::mem::forget(memory);
        Ok(InputLease { input: digest, bytes, lent, arena: self })
    }

    /// Returns the inputs evicted since the last call.
    pub(crate) fn take_evicted_inputs(&self) -> Vec<BlobDigest> {
        self.state().residents.take_evicted()
    }
}

impl Drop for InputLease<'_> {
    fn drop(&mut self) {
        let mut state = self.arena.state();
        if let Some(evicted) = state.residents.release(self.input, self.lent) {
            state.cache(evicted);
        }
    }
}

impl Drop for InputMemory<'_> {
    fn drop(&mut self) {
        let mut state = self.arena.state();
        state.arriving_bytes -= self.block.bytes;
        state.cache(self.block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::sizes::Sizes;

    fn digest(number: u8) -> BlobDigest {
        BlobDigest::of(&[number])
    }

    /// Creates an arena with cached blocks of 10 bytes, so that no test calls a driver.
    fn arena(blocks: u64, resident_bytes_max: u64) -> Arena {
        let arena = Arena::new(Sizes::Exact, 100, resident_bytes_max);
        let mut state = arena.state();
        (1..=blocks).for_each(|address| state.cache(DeviceBuffer { address, bytes: 10 }));
        drop(state);
        arena
    }

    fn wanted(number: u8) -> RunInput {
        RunInput { buffer: 0, digest: digest(number), bytes: 10, share: false }
    }

    fn bring(arena: &Arena, number: u8) -> bool {
        let memory = arena.input_memory(10, u64::MAX, || {}).unwrap();
        memory.is_some_and(|memory| arena.keep_input(memory, wanted(number), 0).is_ok())
    }

    fn leased(arena: &Arena, wanted: &[RunInput]) -> Vec<BlobDigest> {
        let leases = arena.lease_inputs(wanted, u64::MAX, || {}).unwrap();
        leases.iter().map(|lease| lease.input).collect()
    }

    #[test]
    fn an_input_that_stays_counts_as_cached_from_the_start() {
        let arena = arena(2, 100);
        let memory = arena.input_memory(10, u64::MAX, || panic!("the cache has a block")).unwrap().unwrap();
        assert_eq!((arena.usage().held, arena.usage().cached), (20, 20));
        let lease = arena.keep_input(memory, wanted(1), 0).unwrap();
        assert_eq!((arena.usage().held, arena.usage().cached), (20, 20));
        drop(lease);
        assert_eq!((arena.usage().held, arena.usage().cached), (20, 20));
        let other = RunInput { bytes: 9, ..wanted(1) };
        assert_eq!(leased(&arena, &[wanted(1), wanted(2), other]), [digest(1)]);
    }

    #[test]
    fn inputs_beyond_the_limit_replace_those_that_were_not_used_for_longest() {
        let arena = arena(3, 20);
        assert!(bring(&arena, 1) && bring(&arena, 2));
        leased(&arena, &[wanted(1)]);
        assert!(bring(&arena, 3));
        assert_eq!(arena.take_evicted_inputs(), [digest(2)]);
        assert_eq!(leased(&arena, &[1, 2, 3].map(wanted)), [digest(1), digest(3)]);
        assert_eq!(arena.usage().cached, 30, "the memory of the evicted input is a cached block");
    }

    #[test]
    fn an_input_without_room_does_not_stay() {
        let arena = arena(3, 20);
        assert!(arena.input_memory(21, u64::MAX, || {}).unwrap().is_none());
        assert!(arena.input_memory(10, 9, || {}).unwrap().is_none());
        assert!(bring(&arena, 1) && bring(&arena, 2));
        let _in_use = arena.lease_inputs(&[1, 2].map(wanted), u64::MAX, || {}).unwrap();
        assert!(!bring(&arena, 3), "jobs use the others");
    }

    #[test]
    fn an_unused_block_returns_to_the_cache() {
        let arena = arena(1, 100);
        drop(arena.input_memory(10, u64::MAX, || {}).unwrap());
        assert_eq!((arena.usage().held, arena.usage().cached), (10, 10));
    }
}
