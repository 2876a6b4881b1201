//! Device memory with our own books: what jobs hold, and what is kept for the next one.
//!
//! A job gets all of its buffers or none, so two jobs never wait for each other's halves. Where memory is short a job waits for its
//! neighbours to end; alone, it fails with the numbers. Blocks are kept by size, because allocating stalls the whole device. On a
//! GPU sizes are rounded to few classes; on the emulator they are exact, so that it sees an access one element beyond the end.

use std::{
    collections::BTreeMap,
    sync::{Condvar, Mutex, MutexGuard},
};

use cudarc::driver::{result, sys::CUdeviceptr};

use super::error::{CudaError, called};

/// Below this, sizes are rounded to powers of two; above, to multiples of it. A GPU's page is 2 MiB.
const CLASS_BYTES: u64 = 2 << 20;
/// What the driver aligns every allocation to.
const SIZE_BYTES_MIN: u64 = 256;

/// The books.
#[derive(Debug)]
pub(crate) struct Arena {
    state: Mutex<State>,
    released: Condvar,
    sizes: Sizes,
    bytes_max: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sizes {
    Exact,
    Classes,
}

#[derive(Debug, Default)]
struct State {
    kept: BTreeMap<u64, Vec<CUdeviceptr>>,
    kept_bytes: u64,
    used_bytes: u64,
    jobs: usize,
    /// Jobs that have given their memory back, so that who waits for one misses none.
    ended: u64,
}

/// One buffer's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub address: CUdeviceptr,
    /// At least what was asked for.
    pub bytes: u64,
}

/// All buffers of one job. Dropping it keeps the memory for the next; the stream that used it must have ended its work.
#[derive(Debug)]
pub(crate) struct Allocation<'a> {
    pub blocks: Vec<Block>,
    arena: &'a Arena,
}

/// No memory for a job.
#[derive(Debug)]
pub(crate) enum Shortage {
    OutOfMemory { wanted: u64, free: u64 },
    Cuda(CudaError),
}

impl Arena {
    pub(crate) fn new(sizes: Sizes, bytes_max: u64) -> Self {
        Self { state: Mutex::default(), released: Condvar::new(), sizes, bytes_max }
    }

    /// Memory for buffers of these sizes. Waits while neighbours hold what is missing.
    pub(crate) fn take(&self, sizes: &[u64]) -> Result<Allocation<'_>, Shortage> {
        let sizes: Vec<u64> = sizes.iter().map(|bytes| self.size(*bytes)).collect();
        let wanted = sizes.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
        let mut state = self.state();
        loop {
            if let Some(blocks) = self.try_take(&mut state, &sizes, wanted).map_err(Shortage::Cuda)? {
                state.jobs += 1;
                return Ok(Allocation { blocks, arena: self });
            }
            if state.jobs == 0 {
                let free = state.free(self.bytes_max).map_err(Shortage::Cuda)?;
                return Err(Shortage::OutOfMemory { wanted, free });
            }
            state = self.released.wait(state).expect("nobody panics while holding the arena");
        }
    }

    /// How many jobs have given memory back so far; see [`Arena::wait_past`].
    pub(crate) fn ended(&self) -> u64 {
        self.state().ended
    }

    /// Waits until more than `ended` jobs have given memory back. Answers `false` where no job is left that could.
    pub(crate) fn wait_past(&self, ended: u64) -> bool {
        let mut state = self.state();
        while state.ended == ended && state.jobs > 0 {
            state = self.released.wait(state).expect("nobody panics while holding the arena");
        }
        state.ended != ended
    }

    /// Gives kept memory back to the device. Answers whether there was any.
    pub(crate) fn give_up_kept(&self) -> Result<bool, CudaError> {
        let mut state = self.state();
        let had_some = state.kept_bytes > 0;
        state.give_up_kept()?;
        Ok(had_some)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding the arena")
    }

    fn size(&self, bytes: u64) -> u64 {
        let bytes = bytes.max(1);
        match self.sizes {
            Sizes::Exact => bytes,
            Sizes::Classes if bytes > CLASS_BYTES => bytes.checked_next_multiple_of(CLASS_BYTES).unwrap_or(u64::MAX),
            Sizes::Classes => bytes.next_power_of_two().max(SIZE_BYTES_MIN),
        }
    }

    /// All blocks, or `None` if there is not enough. Kept memory is given up once before that.
    fn try_take(&self, state: &mut State, sizes: &[u64], wanted: u64) -> Result<Option<Vec<Block>>, CudaError> {
        if state.used_bytes.saturating_add(wanted) > self.bytes_max {
            return Ok(None);
        }
        if let Some(blocks) = state.allocate(sizes, self.bytes_max)? {
            return Ok(Some(blocks));
        }
        state.give_up_kept()?;
        state.allocate(sizes, self.bytes_max)
    }
}

impl State {
    fn allocate(&mut self, sizes: &[u64], bytes_max: u64) -> Result<Option<Vec<Block>>, CudaError> {
        let mut blocks = Vec::with_capacity(sizes.len());
        for bytes in sizes {
            match self.allocate_one(*bytes, bytes_max) {
                Ok(Some(address)) => blocks.push(Block { address, bytes: *bytes }),
                Ok(None) => {
                    self.keep(&blocks);
                    return Ok(None);
                }
                Err(error) => {
                    self.keep(&blocks);
                    return Err(error);
                }
            }
        }
        Ok(Some(blocks))
    }

    fn allocate_one(&mut self, bytes: u64, bytes_max: u64) -> Result<Option<CUdeviceptr>, CudaError> {
        if let Some(address) = self.kept.get_mut(&bytes).and_then(Vec::pop) {
            self.kept_bytes -= bytes;
            self.used_bytes += bytes;
            return Ok(Some(address));
        }
        if self.used_bytes + self.kept_bytes + bytes > bytes_max {
            return Ok(None);
        }
        // SAFETY: the memory is written before a kernel sees it: the lane fills every block to its end.
        match called("cuMemAlloc", unsafe { result::malloc_sync(bytes as usize) }) {
            Ok(address) => {
                self.used_bytes += bytes;
                Ok(Some(address))
            }
            Err(error) if error.is_out_of_memory() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn keep(&mut self, blocks: &[Block]) {
        for block in blocks {
            self.kept.entry(block.bytes).or_default().push(block.address);
            self.kept_bytes += block.bytes;
            self.used_bytes -= block.bytes;
        }
    }

    fn give_up_kept(&mut self) -> Result<(), CudaError> {
        self.kept_bytes = 0;
        for address in std::mem::take(&mut self.kept).into_values().flatten() {
            // SAFETY: the block came from cuMemAlloc, and no job holds it.
            called("cuMemFree", unsafe { result::free_sync(address) })?;
        }
        Ok(())
    }

    /// What a job alone could have: the device's free memory, or the rest of our share if that is less.
    fn free(&self, bytes_max: u64) -> Result<u64, CudaError> {
        let (free, _) = called("cuMemGetInfo", result::mem_get_info())?;
        Ok((free as u64 + self.kept_bytes).min(bytes_max - self.used_bytes.min(bytes_max)))
    }
}

impl Drop for Allocation<'_> {
    fn drop(&mut self) {
        let mut state = self.arena.state();
        state.keep(&self.blocks);
        state.jobs -= 1;
        state.ended += 1;
        drop(state);
        self.arena.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact_for_the_emulator_and_few_for_a_gpu() {
        let exact = Arena::new(Sizes::Exact, u64::MAX);
        let classes = Arena::new(Sizes::Classes, u64::MAX);
        for bytes in [1, 255, 257, 5 << 20] {
            assert_eq!(exact.size(bytes), bytes);
            assert!(classes.size(bytes) >= bytes);
        }
        assert_eq!(classes.size(1), 256);
        assert_eq!(classes.size(300), 512);
        assert_eq!(classes.size((2 << 20) + 1), 4 << 20);
        assert_eq!(classes.size(u64::MAX), u64::MAX);
    }
}
