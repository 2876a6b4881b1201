//! Device memory with our own books: what jobs hold, and what is kept for the next one.
//!
//! A job gets all of its buffers or none, so two jobs never wait for each other's halves. Where memory is short a job waits for its
//! neighbours to end; alone, it fails with the numbers. Blocks are kept by size, because allocating stalls the whole device. How much
//! may be kept beside a job is the supervisor's to say: other pools' executors live on what this one does not hold.

use std::{
    collections::BTreeMap,
    sync::{Condvar, Mutex, MutexGuard},
};

use cudarc::driver::{result, sys::CUdeviceptr};

use super::error::{CudaError, called};
use crate::executor::sizes::Sizes;

/// The books.
#[derive(Debug)]
pub(crate) struct Arena {
    state: Mutex<State>,
    released: Condvar,
    sizes: Sizes,
    bytes_max: u64,
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

/// What an arena has of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Of jobs and kept.
    pub held: u64,
    pub kept: u64,
    pub is_idle: bool,
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

    /// Memory for buffers of these sizes; afterwards no more than `kept_max` is kept for later ones. Waits while neighbours hold what is
    /// missing.
    pub(crate) fn take(&self, sizes: &[u64], kept_max: u64) -> Result<Allocation<'_>, Shortage> {
        let sizes: Vec<u64> = sizes.iter().map(|bytes| self.sizes.taken(*bytes)).collect();
        let wanted = sizes.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
        let mut state = self.state();
        loop {
            if let Some(blocks) = self.try_take(&mut state, &sizes, wanted, kept_max).map_err(Shortage::Cuda)? {
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
        state.trim(0)?;
        Ok(had_some)
    }

    /// The same for whoever is no job: giving back may wait for the kernels that run, and jobs go on meanwhile. One that finds too little
    /// waits for this as for a neighbour.
    pub(crate) fn give_back(&self) -> Result<(), CudaError> {
        let mut state = self.state();
        let blocks = std::mem::take(&mut state.kept);
        let bytes = std::mem::take(&mut state.kept_bytes);
        state.used_bytes += bytes;
        state.jobs += 1;
        drop(state);
        let freed = blocks.into_values().flatten().try_for_each(free);
        let mut state = self.state();
        state.used_bytes -= bytes;
        state.jobs -= 1;
        state.ended += 1;
        drop(state);
        self.released.notify_all();
        freed
    }

    pub(crate) fn usage(&self) -> Usage {
        let state = self.state();
        Usage { held: state.used_bytes + state.kept_bytes, kept: state.kept_bytes, is_idle: state.jobs == 0 }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding the arena")
    }

    /// All blocks, or `None` if there is not enough. Kept memory is given up once before that.
    fn try_take(
        &self,
        state: &mut State,
        sizes: &[u64],
        wanted: u64,
        kept_max: u64,
    ) -> Result<Option<Vec<Block>>, CudaError> {
        if state.used_bytes.saturating_add(wanted) > self.bytes_max {
            return Ok(None);
        }
        if let Some(blocks) = state.allocate(sizes, kept_max, self.bytes_max)? {
            return Ok(Some(blocks));
        }
        state.trim(0)?;
        state.allocate(sizes, kept_max, self.bytes_max)
    }
}

impl State {
    /// What was kept is used first. What must go goes before anything new is asked of the device.
    fn allocate(&mut self, sizes: &[u64], kept_max: u64, bytes_max: u64) -> Result<Option<Vec<Block>>, CudaError> {
        let mut blocks: Vec<Option<Block>> = sizes.iter().map(|bytes| self.reuse(*bytes)).collect();
        let allocated = self.trim(kept_max).and_then(|()| self.allocate_missing(sizes, &mut blocks, bytes_max));
        let blocks: Vec<Block> = blocks.into_iter().flatten().collect();
        if let Ok(true) = allocated {
            return Ok(Some(blocks));
        }
        self.keep(&blocks);
        allocated.map(|_| None)
    }

    fn reuse(&mut self, bytes: u64) -> Option<Block> {
        let address = self.kept.get_mut(&bytes)?.pop()?;
        self.kept_bytes -= bytes;
        self.used_bytes += bytes;
        Some(Block { address, bytes })
    }

    /// Whether there was enough for all.
    fn allocate_missing(
        &mut self,
        sizes: &[u64],
        blocks: &mut [Option<Block>],
        bytes_max: u64,
    ) -> Result<bool, CudaError> {
        for (bytes, block) in sizes.iter().zip(blocks).filter(|(_, block)| block.is_none()) {
            if self.used_bytes + self.kept_bytes + bytes > bytes_max {
                return Ok(false);
            }
            // SAFETY: the memory is written before a kernel sees it: the lane fills every block to its end.
            match called("cuMemAlloc", unsafe { result::malloc_sync(*bytes as usize) }) {
                Ok(address) => {
                    self.used_bytes += bytes;
                    *block = Some(Block { address, bytes: *bytes });
                }
                Err(error) if error.is_out_of_memory() => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn keep(&mut self, blocks: &[Block]) {
        for block in blocks {
            self.kept.entry(block.bytes).or_default().push(block.address);
            self.kept_bytes += block.bytes;
            self.used_bytes -= block.bytes;
        }
    }

    /// Gives kept blocks back to the device, the largest first, until no more than `kept_max` is kept.
    fn trim(&mut self, kept_max: u64) -> Result<(), CudaError> {
        while self.kept_bytes > kept_max {
            let Some(mut largest) = self.kept.last_entry() else { return Ok(()) };
            let bytes = *largest.key();
            match largest.get_mut().pop() {
                Some(address) => {
                    self.kept_bytes -= bytes;
                    free(address)?;
                }
                None => drop(largest.remove()),
            }
        }
        Ok(())
    }

    /// What a job alone could have: the device's free memory, or the rest of our share if that is less.
    fn free(&self, bytes_max: u64) -> Result<u64, CudaError> {
        let (free, _) = called("cuMemGetInfo", result::mem_get_info())?;
        Ok((free as u64 + self.kept_bytes).min(bytes_max - self.used_bytes.min(bytes_max)))
    }
}

fn free(address: CUdeviceptr) -> Result<(), CudaError> {
    // SAFETY: the block came from cuMemAlloc, and no job holds it.
    called("cuMemFree", unsafe { result::free_sync(address) })
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
