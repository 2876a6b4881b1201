//! The device heap, from which kernels allocate with `malloc`. As on a device, memory that they do not free stays
//! allocated for later kernels until the context ends.

use std::sync::atomic::Ordering;

use super::{Memory, Owner};

impl Memory {
    /// Takes `bytes` for a kernel from a heap of at most `most` bytes; `None` if it is used up.
    pub fn take_heap(&self, bytes: u64, most: u64) -> Option<u64> {
        let used = &self.heap_used;
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= most);
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        let address = self.alloc_for(Owner::Heap, bytes).ok();
        if address.is_none() {
            used.fetch_sub(bytes, Ordering::Relaxed);
        }
        address
    }

    /// Returns memory to the heap; returns false if the address did not come from it.
    pub fn give_heap(&self, address: u64) -> bool {
        let freed = self.free_of(Owner::Heap, address);
        if let Ok(bytes) = freed {
            self.heap_used.fetch_sub(bytes, Ordering::Relaxed);
        }
        freed.is_ok()
    }

    /// Frees everything that kernels have taken from the heap.
    pub fn clear_heap(&self) {
        let is_heap = |(address, range): (&u64, &super::Range)| (range.owner == Owner::Heap).then_some(*address);
        let left: Vec<u64> = self.read_live().iter().filter_map(is_heap).collect();
        for address in left {
            self.give_heap(address);
        }
    }
}
