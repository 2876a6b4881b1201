//! The allocations of a device: who made them, and what for.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::driver::{
    handle::Handle,
    pool::pools,
    status::{Answer, Status},
};
use crate::memory::Memory;

/// The allocations of one device that callers made. A module's variables are its own and not among them.
#[derive(Debug, Default)]
pub struct Allocations {
    live: Mutex<HashMap<u64, Allocation>>,
}

/// Where an allocation came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    pub context: Handle,
    pub bytes: u64,
    /// The pool that it was drawn from, for stream-ordered allocations.
    pub pool: Option<Handle>,
    /// Made for host and device alike.
    pub managed: bool,
    /// Owned by graphs, under this mark of theirs.
    pub graph: Option<Handle>,
}

impl Allocations {
    /// The allocation that starts at an address.
    pub fn get(&self, address: u64) -> Option<Allocation> {
        self.live().get(&address).copied()
    }

    /// Records an allocation.
    pub fn insert(&self, address: u64, allocation: Allocation) {
        self.live().insert(address, allocation);
    }

    /// Frees the allocation that starts at an address.
    pub fn free(&self, address: u64, memory: &Memory) -> Answer {
        let allocation = self.live().remove(&address).ok_or(Status::InvalidValue)?;
        memory.free(address).expect("a listed allocation is live in the memory that it came from");
        give_to_pool(allocation);
        Ok(())
    }

    /// Frees everything that a context allocated.
    pub fn free_all_of(&self, context: Handle, memory: &Memory) {
        self.live().retain(|address, allocation| {
            if allocation.context == context {
                memory.free(*address).expect("a listed allocation is live in the memory that it came from");
                give_to_pool(*allocation);
            }
            allocation.context != context
        });
    }

    fn live(&self) -> MutexGuard<'_, HashMap<u64, Allocation>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pool may be destroyed while memory from it is still in use. That memory is then no longer counted.
fn give_to_pool(allocation: Allocation) {
    let pool = allocation.pool.and_then(|pool| pools().ok()?.get(pool).ok());
    if let Some(pool) = pool {
        pool.give(allocation.bytes);
    }
}
