//! Allocates device memory and accounts for it: memory of jobs, cached memory, and the local memory of kernels.
//!
//! A job gets all of its buffers or none, so two jobs never wait for each other. If memory is short, a job waits until neighbours end;
//! without neighbours it fails with the numbers. Freed blocks are cached by size, because an allocation stalls the whole device. The
//! supervisor limits the cache, because other pools' executors need the rest of the device. Inputs that stay on the device after their jobs
//! are a part of the cache ([`inputs`]).
//!
//! The lock of the accounts is never held during a driver call. A free may wait for running kernels, and meanwhile jobs must be able to end
//! and others to start from cached blocks.
//!
//! The driver itself allocates local memory, when it launches a kernel that needs more of it: for every thread that the device can run at
//! once. It frees that memory with the context.

mod inputs;
mod state;

use std::sync::{Condvar, Mutex, MutexGuard};

use cudarc::driver::{result, sys::CUdeviceptr};

use self::state::State;
pub(crate) use self::{
    inputs::{InputLease, InputMemory, RunInput},
    state::MemoryRequest,
};
use super::{
    buffer::DeviceBuffer,
    device::Device,
    error::{CudaError, called},
};
use crate::executor::sizes::Sizes;

/// The memory accounts of an executor.
#[derive(Debug)]
pub(crate) struct Arena {
    /// Locked, before the accounts, by the one job that allocates from the device, so that the frees before its allocation are complete.
    asking: Mutex<()>,
    state: Mutex<State>,
    released: Condvar,
    sizes: Sizes,
    bytes_max: u64,
    /// Maximum memory for inputs that stay after their jobs, in bytes.
    resident_bytes_max: u64,
}

/// The memory that an arena uses, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Memory of jobs and the cache, which the driver certainly no longer reports as free.
    pub held: u64,
    pub cached: u64,
    /// Local memory. It is counted separately, because no job can use it for buffers: like the rest of the context, it only reduces the
    /// free memory.
    pub local: u64,
    /// The part of the local memory that the driver still reports as free.
    pub local_to_come: u64,
    pub is_idle: bool,
}

/// All buffers of one job. Dropping it moves the memory to the cache; the stream that used it must have ended its work.
#[derive(Debug)]
pub(crate) struct Allocation<'a> {
    pub blocks: Vec<DeviceBuffer>,
    arena: &'a Arena,
}

/// Why there is no memory for a job.
#[derive(Debug)]
pub(crate) enum Shortage {
    OutOfMemory {
        wanted: u64,
        /// The part of `wanted` that is local memory.
        local: u64,
        free: u64,
    },
    Cuda(CudaError),
}

impl Arena {
    pub(crate) fn new(sizes: Sizes, bytes_max: u64, resident_bytes_max: u64) -> Self {
        let (asking, state) = Default::default();
        Self { asking, state, released: Condvar::new(), sizes, bytes_max, resident_bytes_max }
    }

    /// Records that inputs stay in memory to which no kernel can write.
    pub(crate) fn protect_inputs(&self) {
        self.state().residents.protect();
    }

    /// Allocates memory for a job. Afterwards the cache has at most `cache_bytes_max`. If neighbours hold the missing memory, waits for
    /// them. Calls `may_wait` before such a wait and before any driver call.
    pub(crate) fn take(
        &self,
        wanted: MemoryRequest<'_>,
        cache_bytes_max: u64,
        may_wait: impl FnOnce(),
    ) -> Result<Allocation<'_>, Shortage> {
        let sizes: Vec<u64> = wanted.sizes.iter().map(|bytes| self.sizes.taken(*bytes)).collect();
        let wanted = MemoryRequest { sizes: &sizes, ..wanted };
        if let Some(blocks) = self.state().take_cached(wanted, cache_bytes_max) {
            return Ok(Allocation { blocks, arena: self });
        }
        may_wait();
        loop {
            let asking = self.asking();
            let ended = self.ended();
            let local = self.state().growth(wanted.local);
            if local > cache_bytes_max {
                // The rest belongs to other executors, so it does not help to wait for neighbours.
                return Err(Shortage::OutOfMemory {
                    wanted: total(&sizes).saturating_add(local),
                    local,
                    free: cache_bytes_max,
                });
            }
            if let Some(blocks) = self.ask(wanted, cache_bytes_max - local).map_err(Shortage::Cuda)? {
                return Ok(Allocation { blocks, arena: self });
            }
            let state = self.state();
            if state.ended != ended {
                continue;
            }
            if state.jobs == 0 {
                drop(state);
                let free = Device::free_bytes().map_err(Shortage::Cuda)?;
                let free = self.state().free(free, self.bytes_max);
                return Err(Shortage::OutOfMemory { wanted: total(&sizes).saturating_add(local), local, free });
            }
            drop(asking);
            drop(self.wait_while(state, |state| state.ended == ended && state.jobs > 0));
        }
    }

    /// Returns how many jobs have released memory so far; see [`Arena::wait_past`].
    pub(crate) fn ended(&self) -> u64 {
        self.state().ended
    }

    /// Waits until more than `ended` jobs have released memory. Returns false if there is no job left that could.
    pub(crate) fn wait_past(&self, ended: u64) -> bool {
        self.wait_while(self.state(), |state| state.ended == ended && state.jobs > 0).ended != ended
    }

    /// Frees cached memory. Returns whether there was any.
    pub(crate) fn give_up_kept(&self) -> Result<bool, CudaError> {
        let _asking = self.asking();
        let surplus = self.state().surplus(0);
        let had_some = !surplus.is_empty();
        self.free(&surplus)?;
        Ok(had_some)
    }

    /// Frees cached memory at the supervisor's request. Inputs that jobs use now are freed when these jobs end.
    pub(crate) fn give_back(&self) -> Result<(), CudaError> {
        let mut state = self.state();
        state.evict_residents();
        let surplus = state.surplus(0);
        self.free_as_neighbour(state, &surplus)
    }

    /// Frees blocks without blocking jobs that allocate. A job that finds too little memory waits for this as it waits for a neighbour.
    fn free_as_neighbour(&self, mut state: MutexGuard<'_, State>, blocks: &[DeviceBuffer]) -> Result<(), CudaError> {
        state.jobs += 1;
        drop(state);
        let freed = self.free(blocks);
        let mut state = self.state();
        state.jobs -= 1;
        state.ended += 1;
        drop(state);
        self.released.notify_all();
        freed
    }

    /// Returns whether the driver would allocate local memory for a launch that needs this much. That allocation waits for running kernels.
    pub(crate) fn grows_at_launch(&self, local: u64) -> bool {
        local > self.state().local_bytes_launched
    }

    /// Records that the driver has allocated the local memory.
    pub(crate) fn launched(&self, local: u64) {
        let mut state = self.state();
        state.local_bytes_launched = state.local_bytes_launched.max(local);
    }

    pub(crate) fn usage(&self) -> Usage {
        let state = self.state();
        Usage {
            held: state.used_bytes + state.kept_bytes(),
            cached: state.kept_bytes(),
            local: state.local_bytes,
            local_to_come: state.local_bytes.saturating_sub(state.local_bytes_launched),
            is_idle: state.jobs == 0,
        }
    }

    fn asking(&self) -> MutexGuard<'_, ()> {
        self.asking.lock().expect("no thread panics while asking the device")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while holding the arena")
    }

    fn wait_while<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        holds: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'a, State> {
        self.released.wait_while(state, holds).expect("no thread panics while holding the arena")
    }

    /// Allocates all blocks, or returns `None` if there is too little memory even after freeing the cache.
    fn ask(&self, wanted: MemoryRequest<'_>, cache_bytes_max: u64) -> Result<Option<Vec<DeviceBuffer>>, CudaError> {
        let state = self.state();
        let all = state.taken().saturating_add(total(wanted.sizes)).saturating_add(state.growth(wanted.local));
        drop(state);
        if all > self.bytes_max {
            return Ok(None);
        }
        match self.allocate(wanted, cache_bytes_max)? {
            Some(blocks) => Ok(Some(blocks)),
            None => self.allocate(wanted, 0),
        }
    }

    /// Allocates blocks from the cache first. Frees surplus blocks before it allocates new ones.
    fn allocate(
        &self,
        wanted: MemoryRequest<'_>,
        cache_bytes_max: u64,
    ) -> Result<Option<Vec<DeviceBuffer>>, CudaError> {
        let sizes = wanted.sizes;
        let mut state = self.state();
        let mut blocks: Vec<Option<DeviceBuffer>> = sizes.iter().map(|bytes| state.reuse(*bytes)).collect();
        let surplus = state.surplus(cache_bytes_max);
        drop(state);
        let allocated = self.free(&surplus).and_then(|()| self.allocate_missing(sizes, &mut blocks));
        let allocated = allocated.and_then(|all| Ok(all && self.grow(wanted.local)?));
        let blocks: Vec<DeviceBuffer> = blocks.into_iter().flatten().collect();
        let mut state = self.state();
        if let Ok(true) = allocated {
            state.jobs += 1;
            return Ok(Some(blocks));
        }
        state.keep(&blocks);
        allocated.map(|_| None)
    }

    /// Allocates the missing blocks. Returns whether there was enough memory for all.
    fn allocate_missing(&self, sizes: &[u64], blocks: &mut [Option<DeviceBuffer>]) -> Result<bool, CudaError> {
        for (bytes, block) in sizes.iter().zip(blocks).filter(|(_, block)| block.is_none()) {
            if !self.state().reserve(*bytes, self.bytes_max) {
                return Ok(false);
            }
            // SAFETY: every block is written before a kernel sees it, because the stream fills it to its end.
            match called("cuMemAlloc", unsafe { result::malloc_sync(*bytes as usize) }) {
                Ok(address) => {
                    self.state().got(*bytes);
                    *block = Some(DeviceBuffer { address, bytes: *bytes });
                }
                Err(error) => {
                    self.state().moving_bytes -= bytes;
                    return if error.is_out_of_memory() { Ok(false) } else { Err(error) };
                }
            }
        }
        Ok(true)
    }

    /// Accounts for the local memory that the driver will allocate. Returns false if there is no room for it.
    fn grow(&self, local: u64) -> Result<bool, CudaError> {
        if self.state().growth(local) == 0 {
            return Ok(true);
        }
        let free = Device::free_bytes()?;
        Ok(self.state().grow(local, free, self.bytes_max))
    }

    /// Frees blocks that are neither in use nor cached.
    fn free(&self, blocks: &[DeviceBuffer]) -> Result<(), CudaError> {
        let freed = blocks.iter().try_for_each(|block| free(block.address));
        self.state().moving_bytes -= blocks.iter().map(|block| block.bytes).sum::<u64>();
        freed
    }
}

fn total(sizes: &[u64]) -> u64 {
    sizes.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
}

fn free(address: CUdeviceptr) -> Result<(), CudaError> {
    // SAFETY: the block comes from cuMemAlloc, and no job holds it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_its_way_is_of_our_share_but_not_held() {
        let arena = Arena::new(Sizes::Exact, 100, 50);
        assert!(arena.state().reserve(60, 100));
        assert_eq!((arena.usage().held, arena.usage().cached), (0, 0));
        assert!(!arena.state().reserve(60, 100));
        arena.state().got(60);
        arena.state().keep(&[DeviceBuffer { address: 1, bytes: 60 }]);
        assert_eq!((arena.usage().held, arena.usage().cached), (60, 60));
        assert_eq!(arena.state().surplus(0).len(), 1);
        assert_eq!((arena.usage().held, arena.usage().cached), (0, 0));
        assert!(!arena.state().reserve(60, 100), "it is not freed yet");
    }

    #[test]
    fn local_memory_is_of_our_share_and_only_grows() {
        let arena = Arena::new(Sizes::Exact, 100, 50);
        assert!(!arena.state().grow(30, 20, 100), "the device has less");
        assert!(arena.state().grow(30, 40, 100));
        assert!(!arena.state().grow(101, 1000, 100));
        assert_eq!((arena.usage().local, arena.usage().local_to_come), (30, 30));
        arena.launched(30);
        assert!(arena.grows_at_launch(31) && !arena.grows_at_launch(30));
        assert!(arena.state().grow(20, 0, 100));
        assert_eq!((arena.usage().local, arena.usage().local_to_come), (30, 0));
        assert!(!arena.state().reserve(71, 100) && arena.state().reserve(70, 100));
    }
}
