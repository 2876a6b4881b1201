//! Confinement: limits the kernels of one job to the job's own allocations and to what its kernels take from the device
//! heap. A program can ask for it; a GPU stops a kernel only where no memory is mapped.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Memory;

/// The memory that the kernels of a job may reach.
#[derive(Debug, Default)]
pub struct Confinement {
    /// Start addresses of its allocations.
    allocations: BTreeSet<u64>,
    /// Start addresses of what its kernels took from the heap.
    heap: Mutex<BTreeSet<u64>>,
}

impl Confinement {
    /// Confines kernels to the allocations that start at these addresses.
    pub fn to(allocations: impl IntoIterator<Item = u64>) -> Confinement {
        Confinement { allocations: allocations.into_iter().collect(), heap: Mutex::default() }
    }

    /// Reports whether kernels may reach the allocation that starts at `base`.
    pub fn allows(&self, base: u64) -> bool {
        self.allocations.contains(&base) || self.heap().contains(&base)
    }

    /// Records memory that a kernel took from the heap.
    pub fn take_heap(&self, address: u64) {
        self.heap().insert(address);
    }

    /// Records memory that a kernel returns to the heap; returns false if it is not the job's.
    pub fn give_heap(&self, address: u64) -> bool {
        self.heap().remove(&address)
    }

    /// Frees what the job's kernels left on the heap, because nothing can reach it any more.
    pub fn end(&self, memory: &Memory) {
        for address in std::mem::take(&mut *self.heap()) {
            memory.give_heap(address);
        }
    }

    fn heap(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
