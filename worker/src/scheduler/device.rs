//! The scheduler's view of one device: slots and memory by pool, and the running executors.
//!
//! A device's memory has three parts: the memory of running jobs, the memory that executors cache, and free memory. An executor's cached
//! memory is only for jobs of its own pool. Other pools get it after a release, which takes a moment and is requested only when a job waits
//! for it.

use std::collections::HashSet;

use gpufleet_schema::BlobDigest;

use super::{Demand, DeviceId, PoolId};

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
    gone: bool,
    executors: Vec<PoolExecutor>,
}

/// A pool's executor on the device.
#[derive(Debug, Clone)]
pub(super) struct PoolExecutor {
    pub(super) pool: PoolId,
    pub(super) up: bool,
    pub(super) slots_taken: u32,
    pub(super) bytes_taken: u64,
    /// The part of `bytes_taken` that sessions hold.
    session_bytes: u64,
    /// Upper bound of the memory that the executor caches in addition to its jobs' declared memory.
    cached: u64,
    /// The inputs that are resident in the executor for later jobs.
    residents: HashSet<BlobDigest>,
    /// Whether the executor was asked to release its cache, and has cached nothing new since.
    release_requested: bool,
    /// Whether a job that must run alone runs here.
    pub(super) exclusive: bool,
    /// Whether a job that may print runs here.
    pub(super) printing: bool,
}

impl Device {
    pub(super) fn new(id: DeviceId, slots: u32, bytes: u64) -> Self {
        Self { id, bytes, available: bytes, slots, slots_taken: 0, sessions: 0, gone: false, executors: Vec::new() }
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
    pub(super) fn executor_up(&mut self, pool: PoolId) {
        if self.gone {
            return;
        }
        self.entry(pool).up = true;
    }

    pub(super) fn executor_down(&mut self, pool: PoolId) {
        if let Some(executor) = self.find_mut(pool) {
            (executor.up, executor.cached) = (false, 0);
            executor.residents.clear();
        }
    }

    /// Returns the pool's executor if it is up.
    pub(super) fn executor(&self, pool: PoolId) -> Option<&PoolExecutor> {
        self.find(pool).filter(|executor| executor.up)
    }

    pub(super) fn slots_free(&self) -> u32 {
        self.slots.saturating_sub(self.slots_taken)
    }

    pub(super) fn slots_taken(&self) -> u32 {
        self.slots_taken
    }

    /// Returns the slots and memory that the pool uses here. Jobs count until they have left, even if their executor is down.
    pub(super) fn taken(&self, pool: PoolId) -> (u32, u64) {
        self.find(pool).map_or((0, 0), |executor| (executor.slots_taken, executor.bytes_taken))
    }

    pub(super) fn take(&mut self, demand: Demand) {
        self.slots_taken += 1;
        let executor = self.executor_mut(demand.pool);
        executor.slots_taken += 1;
        executor.bytes_taken += demand.bytes;
        executor.exclusive |= demand.alone;
        executor.printing |= demand.prints;
    }

    /// Takes memory for a session. The pool's executor need not be up, because a session has a process of its own.
    pub(super) fn take_session(&mut self, demand: Demand) {
        self.sessions += 1;
        let executor = self.entry(demand.pool);
        executor.bytes_taken += demand.bytes;
        executor.session_bytes += demand.bytes;
    }

    pub(super) fn release_session(&mut self, demand: Demand) {
        self.sessions -= 1;
        let executor = self.executor_mut(demand.pool);
        executor.bytes_taken -= demand.bytes;
        executor.session_bytes -= demand.bytes;
        executor.release_requested = false;
    }

    /// Returns the memory that the pool's sessions hold here.
    pub(super) fn session_bytes(&self, pool: PoolId) -> u64 {
        self.find(pool).map_or(0, |executor| executor.session_bytes)
    }

    /// Returns the memory that the sessions of all pools hold here.
    pub(super) fn all_session_bytes(&self) -> u64 {
        self.executors.iter().map(|executor| executor.session_bytes).sum()
    }

    /// Takes memory for a job that rides in a train, which has its slot already.
    pub(super) fn take_memory(&mut self, demand: Demand) {
        self.executor_mut(demand.pool).bytes_taken += demand.bytes;
    }

    pub(super) fn release_memory(&mut self, demand: Demand) {
        self.executor_mut(demand.pool).bytes_taken -= demand.bytes;
    }

    pub(super) fn release(&mut self, demand: Demand) {
        self.release_memory(demand);
        self.slots_taken -= 1;
        let executor = self.executor_mut(demand.pool);
        executor.slots_taken -= 1;
        executor.release_requested = false;
        // In an exclusive executor, the job that leaves was the only one.
        executor.exclusive = false;
        executor.printing &= !demand.prints;
    }

    /// Returns the additional memory that the pool's jobs can have now.
    pub(super) fn bytes_free(&self, pool: PoolId) -> u64 {
        match self.cached(Some(pool)) {
            0 => self.bytes_unused(),
            cached => self.available_unused().saturating_sub(cached),
        }
    }

    /// Returns the additional memory that a pool's jobs can have after all other executors have released their caches. If no job runs and no
    /// session is open, this is all of the device's memory even if other processes use some of it: a job then starts and the driver decides, because no job
    /// should wait for other processes forever.
    pub(super) fn bytes_unused(&self) -> u64 {
        if self.slots_taken == 0 && self.sessions == 0 { self.bytes } else { self.available_unused() }
    }

    /// Returns the memory that running jobs and other executors leave for the cache of the pool's executor.
    pub(super) fn cache_bytes_max(&self, pool: PoolId) -> u64 {
        self.available_unused().saturating_sub(self.cached(Some(pool)))
    }

    pub(super) fn set_cached(&mut self, pool: PoolId, cached: u64) {
        if let Some(executor) = self.find_mut(pool).filter(|executor| executor.up) {
            executor.release_requested &= cached <= executor.cached;
            executor.cached = cached;
        }
    }

    pub(super) fn set_resident(&mut self, pool: PoolId, input: BlobDigest, is_resident: bool) {
        if let Some(executor) = self.find_mut(pool).filter(|executor| executor.up) {
            match is_resident {
                true => executor.residents.insert(input),
                false => executor.residents.remove(&input),
            };
        }
    }

    /// Returns whether the input is resident in the pool's executor.
    pub(super) fn has_input(&self, pool: PoolId, input: BlobDigest) -> bool {
        self.executor(pool).is_some_and(|executor| executor.residents.contains(&input))
    }

    /// Returns the pools, without `except`, whose executors must release memory so that so many missing bytes become free: as few as
    /// possible, those with the largest caches first. Executors that were already asked are left out.
    pub(super) fn caches_to_release(&self, except: Option<PoolId>, mut missing: u64) -> Vec<PoolId> {
        let mut others: Vec<&PoolExecutor> =
            self.executors.iter().filter(|executor| Some(executor.pool) != except && executor.cached > 0).collect();
        others.sort_by_key(|executor| std::cmp::Reverse(executor.cached));
        let needed = others.into_iter().take_while(|executor| {
            let is_needed = missing > 0;
            missing = missing.saturating_sub(executor.cached);
            is_needed
        });
        needed.filter(|executor| !executor.release_requested).map(|executor| executor.pool).collect()
    }

    pub(super) fn request_release(&mut self, pool: PoolId) {
        self.executor_mut(pool).release_requested = true;
    }

    /// Returns the memory that is available and that neither jobs nor sessions hold.
    pub(super) fn available_unused(&self) -> u64 {
        self.available.saturating_sub(self.executors.iter().map(|executor| executor.bytes_taken).sum())
    }

    /// Returns the memory that executors cache, without that of `except`, whose jobs can use it. A session can't use the cache of any
    /// executor.
    pub(super) fn cached(&self, except: Option<PoolId>) -> u64 {
        // Saturate, because an executor's report of its cache may be wrong.
        let others = self.executors.iter().filter(|executor| Some(executor.pool) != except);
        others.fold(0, |sum, executor| sum.saturating_add(executor.cached))
    }

    fn find(&self, pool: PoolId) -> Option<&PoolExecutor> {
        self.executors.iter().find(|executor| executor.pool == pool)
    }

    fn find_mut(&mut self, pool: PoolId) -> Option<&mut PoolExecutor> {
        self.executors.iter_mut().find(|executor| executor.pool == pool)
    }

    /// Returns the pool's entry, which is made if the pool has had no executor here.
    fn entry(&mut self, pool: PoolId) -> &mut PoolExecutor {
        let place = self.executors.iter().position(|executor| executor.pool == pool).unwrap_or_else(|| {
            self.executors.push(PoolExecutor::new(pool));
            self.executors.len() - 1
        });
        &mut self.executors[place]
    }

    fn executor_mut(&mut self, pool: PoolId) -> &mut PoolExecutor {
        self.find_mut(pool).expect("jobs run and memory is cached only where the pool has an executor")
    }
}

impl PoolExecutor {
    fn new(pool: PoolId) -> Self {
        Self {
            pool,
            up: false,
            slots_taken: 0,
            bytes_taken: 0,
            session_bytes: 0,
            cached: 0,
            residents: HashSet::new(),
            release_requested: false,
            exclusive: false,
            printing: false,
        }
    }
}
