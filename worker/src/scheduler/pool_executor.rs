//! One of a pool's executors on a device, and how well it suits a job.
//!
//! If a running job is cancelled or reaches its time limit, its executor ends, and the other jobs there start again from the beginning. So
//! long jobs get executors of their own as far as there are some, and short ones share the first executor.

use std::collections::HashSet;

use gpufleet_schema::BlobDigest;

use super::{Demand, ExecutorId};

/// An executor that is up, or has been.
#[derive(Debug, Clone)]
pub(super) struct PoolExecutor {
    pub(super) id: ExecutorId,
    pub(super) up: bool,
    pub(super) slots_taken: u32,
    /// Upper bound of the memory that the executor caches in addition to its jobs' declared memory.
    pub(super) cached: u64,
    /// The inputs that are resident in the executor for later jobs.
    residents: HashSet<BlobDigest>,
    /// Whether the executor was asked to release its cache, and has cached nothing new since.
    pub(super) release_requested: bool,
    /// Whether a job that must run alone runs here.
    pub(super) exclusive: bool,
    /// Whether a job that may print runs here.
    pub(super) printing: bool,
}

impl PoolExecutor {
    /// Creates an executor that is up.
    pub(super) fn new(id: ExecutorId) -> Self {
        Self {
            id,
            up: true,
            slots_taken: 0,
            cached: 0,
            residents: HashSet::new(),
            release_requested: false,
            exclusive: false,
            printing: false,
        }
    }

    /// Records that the executor has ended. Its jobs will still leave one by one.
    pub(super) fn end(&mut self) {
        (self.up, self.cached) = (false, 0);
        self.residents.clear();
    }

    pub(super) fn take(&mut self, demand: Demand) {
        self.slots_taken += 1;
        self.exclusive |= demand.alone;
        self.printing |= demand.prints;
    }

    pub(super) fn release(&mut self, demand: Demand) {
        self.slots_taken -= 1;
        self.release_requested = false;
        // In an exclusive executor, the job that leaves was the only one.
        self.exclusive = false;
        self.printing &= !demand.prints;
    }

    pub(super) fn has_input(&self, input: BlobDigest) -> bool {
        self.residents.contains(&input)
    }

    pub(super) fn set_resident(&mut self, input: BlobDigest, is_resident: bool) {
        match is_resident {
            true => self.residents.insert(input),
            false => self.residents.remove(&input),
        };
    }

    /// Returns whether the job must wait for another job of this executor.
    pub(super) fn is_blocked_for(&self, demand: Demand) -> bool {
        self.exclusive || demand.alone && self.slots_taken > 0 || demand.prints && self.printing
    }

    /// Returns the rank of the executor for a job, which gets the executor with the lowest one. `waits` says whether the job's memory may
    /// not be free here before other jobs have ended.
    ///
    /// A long job gets an executor without jobs, or else the one with the fewest; in both cases rather not the first one, where the short
    /// jobs are. Among equals it prefers one that has its largest input.
    pub(super) fn rank(&self, demand: Demand, waits: bool) -> impl Ord + use<> {
        let index = self.id.index;
        if !demand.is_long {
            return (false, false, waits, 0, false, index);
        }
        let lacks_input = demand.input.is_some_and(|input| !self.has_input(input));
        (self.slots_taken > 0, index == 0, waits, self.slots_taken, lacks_input, index)
    }
}
