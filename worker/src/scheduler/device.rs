//! The scheduler's view of one device: its slots, the memory of each pool, and the running executors.
//!
//! A device's memory has three parts: the memory of running jobs, the memory that executors cache, and free memory. An executor's cached
//! memory is only for its own jobs. Other executors get it after a release, which takes a moment and is requested only when a job waits
//! for it.

use gpufleet_schema::BlobDigest;

use super::{Demand, DeviceId, ExecutorId, PoolId, pool_executor::PoolExecutor};

/// A device with its slots, memory and executors.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) id: DeviceId,
    pub(super) bytes: u64,
    /// The part of `bytes` that is available for all jobs together. Other processes may use the rest.
    available: u64,
    pub(super) slots: u32,
    slots_taken: u32,
    /// Open sessions, which hold memory and no slot.
    sessions: u32,
    /// A host program has the whole device.
    is_leased: bool,
    gone: bool,
    executors: Vec<PoolExecutor>,
    /// The memory of each pool that has had some here, by pool.
    memory: Vec<PoolMemory>,
}

/// The memory that a pool holds on a device, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct PoolMemory {
    taken: u64,
    /// The part of `taken` that sessions hold.
    sessions: u64,
}

impl Device {
    pub(super) fn new(id: DeviceId, slots: u32, bytes: u64) -> Self {
        let (executors, memory) = Default::default();
        let (slots_taken, sessions, is_leased, gone) = Default::default();
        Self { id, bytes, available: bytes, slots, slots_taken, sessions, is_leased, gone, executors, memory }
    }

    pub(super) fn resize(&mut self, slots: u32, bytes: u64) {
        (self.slots, self.bytes, self.available) = (slots, bytes, bytes);
    }

    pub(super) fn set_available(&mut self, available: u64) {
        self.available = available.min(self.bytes);
    }

    pub(super) fn available(&self) -> u64 {
        self.available
    }

    pub(super) fn retire(&mut self) {
        self.executors.iter_mut().for_each(|executor| executor.up = false);
        self.gone = true;
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Marks an executor as up, unless the device is out of service: an executor may have started just before that.
    pub(super) fn executor_up(&mut self, id: ExecutorId) {
        if self.gone {
            return;
        }
        match self.find_mut(id) {
            Some(executor) => executor.up = true,
            None => self.executors.push(PoolExecutor::new(id)),
        }
    }

    pub(super) fn executor_down(&mut self, id: ExecutorId) {
        if let Some(executor) = self.find_mut(id) {
            executor.end();
        }
    }

    /// Returns the pool's executors that are up.
    pub(super) fn executors(&self, pool: PoolId) -> impl Iterator<Item = &PoolExecutor> {
        self.executors.iter().filter(move |executor| executor.up && executor.id.pool == pool)
    }

    /// Returns the slots that jobs could take; none while a host program has the device.
    pub(super) fn slots_free(&self) -> u32 {
        if self.is_leased { 0 } else { self.slots.saturating_sub(self.slots_taken) }
    }

    /// Returns whether a host program has the whole device.
    pub(super) fn is_leased(&self) -> bool {
        self.is_leased
    }

    /// Returns whether no job runs here and no session is open.
    pub(super) fn is_idle(&self) -> bool {
        self.slots_taken == 0 && self.sessions == 0
    }

    /// Returns the demand with the memory that it takes here: a host program takes all of it.
    pub(super) fn demand_here(&self, demand: Demand) -> Demand {
        if demand.is_whole() { Demand { bytes: self.available, ..demand } } else { demand }
    }

    pub(super) fn slots_taken(&self) -> u32 {
        self.slots_taken
    }

    /// Returns the slots and memory that the pool uses here. Jobs count until they have left, even if their executor is down.
    pub(super) fn taken(&self, pool: PoolId) -> (u32, u64) {
        let of_pool = self.executors.iter().filter(|executor| executor.id.pool == pool);
        (of_pool.map(|executor| executor.slots_taken).sum(), self.memory(pool).taken)
    }

    pub(super) fn take(&mut self, id: ExecutorId, demand: Demand) {
        self.slots_taken += 1;
        self.take_memory(demand);
        self.executor_mut(id).take(demand);
    }

    /// Takes memory for a session. The pool needs no executor that is up, because a session has processes of its own.
    pub(super) fn take_session(&mut self, demand: Demand) {
        self.sessions += 1;
        self.is_leased |= demand.is_whole();
        self.take_memory(demand);
        self.memory_mut(demand.pool).sessions += demand.bytes;
    }

    pub(super) fn release_session(&mut self, demand: Demand) {
        self.sessions -= 1;
        self.is_leased &= !demand.is_whole();
        self.release_memory(demand);
        self.memory_mut(demand.pool).sessions -= demand.bytes;
        let of_pool = self.executors.iter_mut().filter(|executor| executor.id.pool == demand.pool);
        of_pool.for_each(|executor| executor.release_requested = false);
    }

    /// Returns the memory that the pool's sessions hold here.
    pub(super) fn session_bytes(&self, pool: PoolId) -> u64 {
        self.memory(pool).sessions
    }

    /// Returns the memory that the sessions of all pools hold here.
    pub(super) fn all_session_bytes(&self) -> u64 {
        self.memory.iter().map(|memory| memory.sessions).sum()
    }

    /// Takes memory for a job that rides in a train, which has its slot already.
    pub(super) fn take_memory(&mut self, demand: Demand) {
        self.memory_mut(demand.pool).taken += demand.bytes;
    }

    pub(super) fn release_memory(&mut self, demand: Demand) {
        self.memory_mut(demand.pool).taken -= demand.bytes;
    }

    pub(super) fn release(&mut self, id: ExecutorId, demand: Demand) {
        self.release_memory(demand);
        self.slots_taken -= 1;
        self.executor_mut(id).release(demand);
    }

    /// Returns the additional memory that jobs of the executor can have now.
    pub(super) fn bytes_free(&self, id: ExecutorId) -> u64 {
        self.bytes_beside(self.cached(Some(id)))
    }

    /// Returns the additional memory that jobs of the executor can have soon: once the other executors without jobs have released what they
    /// cache. On a GPU, an executor with jobs may have to wait for their kernels before it can free memory.
    pub(super) fn bytes_soon(&self, id: ExecutorId) -> u64 {
        let busy = self.executors.iter().filter(|executor| executor.id != id && executor.slots_taken > 0);
        self.bytes_beside(cached_sum(busy))
    }

    /// Returns the additional memory that an executor's jobs can have after all other executors have released their caches. If no job runs
    /// and no session is open, this is all of the device's memory even if other processes use some of it: a job then starts and the driver
    /// decides, because no job should wait for other processes forever.
    pub(super) fn bytes_unused(&self) -> u64 {
        if self.is_idle() { self.bytes } else { self.available_unused() }
    }

    fn bytes_beside(&self, cached: u64) -> u64 {
        match cached {
            0 => self.bytes_unused(),
            cached => self.available_unused().saturating_sub(cached),
        }
    }

    /// Returns the memory that running jobs and other executors leave for the executor's cache.
    pub(super) fn cache_bytes_max(&self, id: ExecutorId) -> u64 {
        self.available_unused().saturating_sub(self.cached(Some(id)))
    }

    pub(super) fn set_cached(&mut self, id: ExecutorId, cached: u64) {
        if let Some(executor) = self.find_mut(id).filter(|executor| executor.up) {
            executor.release_requested &= cached <= executor.cached;
            executor.cached = cached;
        }
    }

    pub(super) fn set_resident(&mut self, id: ExecutorId, input: BlobDigest, is_resident: bool) {
        if let Some(executor) = self.find_mut(id).filter(|executor| executor.up) {
            executor.set_resident(input, is_resident);
        }
    }

    /// Returns the executors, without `except`, that must release memory so that so many missing bytes become free: as few as possible,
    /// those with the largest caches first. Executors that were already asked are left out.
    pub(super) fn caches_to_release(&self, except: Option<ExecutorId>, mut missing: u64) -> Vec<ExecutorId> {
        let mut others: Vec<&PoolExecutor> =
            self.executors.iter().filter(|executor| Some(executor.id) != except && executor.cached > 0).collect();
        others.sort_by_key(|executor| std::cmp::Reverse(executor.cached));
        let needed = others.into_iter().take_while(|executor| {
            let is_needed = missing > 0;
            missing = missing.saturating_sub(executor.cached);
            is_needed
        });
        needed.filter(|executor| !executor.release_requested).map(|executor| executor.id).collect()
    }

    pub(super) fn request_release(&mut self, id: ExecutorId) {
        self.executor_mut(id).release_requested = true;
    }

    /// Returns the memory that is available and that neither jobs nor sessions hold.
    pub(super) fn available_unused(&self) -> u64 {
        self.available.saturating_sub(self.memory.iter().map(|memory| memory.taken).sum())
    }

    /// Returns the memory that executors cache, without that of `except`, whose jobs can use it. A session can't use the cache of any
    /// executor.
    pub(super) fn cached(&self, except: Option<ExecutorId>) -> u64 {
        cached_sum(self.executors.iter().filter(|executor| Some(executor.id) != except))
    }

    fn memory(&self, pool: PoolId) -> PoolMemory {
        self.memory.get(pool.0 as usize).copied().unwrap_or_default()
    }

    fn memory_mut(&mut self, pool: PoolId) -> &mut PoolMemory {
        let index = pool.0 as usize;
        if self.memory.len() <= index {
            self.memory.resize(index + 1, PoolMemory::default());
        }
        &mut self.memory[index]
    }

    fn find_mut(&mut self, id: ExecutorId) -> Option<&mut PoolExecutor> {
        self.executors.iter_mut().find(|executor| executor.id == id)
    }

    fn executor_mut(&mut self, id: ExecutorId) -> &mut PoolExecutor {
        self.find_mut(id).expect("jobs run and memory is cached only in executors that have been up")
    }
}

/// Saturates, because an executor's report of its cache may be wrong.
fn cached_sum<'a>(executors: impl Iterator<Item = &'a PoolExecutor>) -> u64 {
    executors.fold(0, |sum, executor| sum.saturating_add(executor.cached))
}
