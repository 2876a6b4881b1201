//! What the kernels of one job may reach of a device's memory, where a program says so: its own allocations, and what its
//! kernels take from the heap. A GPU stops a kernel only where no memory is mapped.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Memory;

/// The memory of a job.
#[derive(Debug, Default)]
pub struct Confinement {
    /// Where its allocations start.
    allocations: BTreeSet<u64>,
    /// The same of what its kernels took from the heap.
    heap: Mutex<BTreeSet<u64>>,
}

impl Confinement {
    /// To the allocations that start at these addresses.
    pub fn to(allocations: impl IntoIterator<Item = u64>) -> Confinement {
        Confinement { allocations: allocations.into_iter().collect(), heap: Mutex::default() }
    }

    /// Whether kernels may reach the allocation that starts here.
    pub fn allows(&self, base: u64) -> bool {
        self.allocations.contains(&base) || self.heap().contains(&base)
    }

    /// A kernel took memory from the heap.
    pub fn take_heap(&self, address: u64) {
        self.heap().insert(address);
    }

    /// A kernel gives memory back to the heap; false where it is not the job's.
    pub fn give_heap(&self, address: u64) -> bool {
        self.heap().remove(&address)
    }

    /// Frees what the job's kernels have left on the heap: nothing can reach it any more.
    pub fn end(&self, memory: &Memory) {
        for address in std::mem::take(&mut *self.heap()) {
            memory.give_heap(address);
        }
    }

    fn heap(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
