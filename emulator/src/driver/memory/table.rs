//! The allocations of a device, with their context and purpose.

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

/// The allocations of one device that callers made. Variables of modules are not included.
#[derive(Debug, Default)]
pub struct Allocations {
    live: Mutex<HashMap<u64, Allocation>>,
}

/// Origin of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    pub context: Handle,
    pub bytes: u64,
    /// The pool, for stream-ordered allocations.
    pub pool: Option<Handle>,
    /// True for managed memory.
    pub managed: bool,
    /// Mark of the graphs that own it.
    pub graph: Option<Handle>,
}

impl Allocations {
    /// Returns the allocation that starts at an address.
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

/// Returns the bytes to their pool. A pool may be destroyed while its memory is in use; the memory then no longer
/// counts.
fn give_to_pool(allocation: Allocation) {
    let pool = allocation.pool.and_then(|pool| pools().ok()?.get(pool).ok());
    if let Some(pool) = pool {
        pool.give(allocation.bytes);
    }
}
