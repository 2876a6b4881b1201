//! The accounts of an arena. This module is plain data; the arena allocates and frees the memory.

use std::collections::BTreeMap;

use cudarc::driver::sys::CUdeviceptr;

use crate::executor::cuda::{buffer::DeviceBuffer, residents::Residents};

/// The memory that a job needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryRequest<'a> {
    /// The sizes of its buffers in bytes.
    pub sizes: &'a [u64],
    /// The local memory that the context needs with this job, in bytes.
    pub local: u64,
}

/// The current division of the memory; all sizes are in bytes.
#[derive(Debug, Default)]
pub(super) struct State {
    cached: BTreeMap<u64, Vec<CUdeviceptr>>,
    cached_bytes: u64,
    pub(super) residents: Residents,
    /// Memory of inputs that will become resident once they are complete.
    pub(super) arriving_bytes: u64,
    pub(super) used_bytes: u64,
    /// Memory that is being allocated or freed. It counts towards this executor's share.
    pub(super) moving_bytes: u64,
    /// Local memory that the driver has allocated, or will allocate at a launch.
    pub(super) local_bytes: u64,
    /// Local memory that the driver has certainly allocated.
    pub(super) local_bytes_launched: u64,
    pub(super) jobs: usize,
    /// Number of jobs that have released memory. It lets a waiting job notice each release.
    pub(super) ended: u64,
}

impl State {
    /// Takes all blocks for a job from the cache, or returns `None` if it does not have them.
    pub(super) fn take_cached(&mut self, wanted: MemoryRequest<'_>, cache_bytes_max: u64) -> Option<Vec<DeviceBuffer>> {
        let blocks: Vec<DeviceBuffer> = wanted.sizes.iter().map_while(|bytes| self.reuse(*bytes)).collect();
        if blocks.len() < wanted.sizes.len() || self.kept_bytes() > cache_bytes_max || self.growth(wanted.local) > 0 {
            self.keep(&blocks);
            return None;
        }
        self.jobs += 1;
        Some(blocks)
    }

    pub(super) fn reuse(&mut self, bytes: u64) -> Option<DeviceBuffer> {
        let address = self.cached.get_mut(&bytes)?.pop()?;
        self.cached_bytes -= bytes;
        self.used_bytes += bytes;
        Some(DeviceBuffer { address, bytes })
    }

    pub(super) fn keep(&mut self, blocks: &[DeviceBuffer]) {
        for block in blocks {
            self.used_bytes -= block.bytes;
            self.cache(*block);
        }
    }

    pub(super) fn cache(&mut self, block: DeviceBuffer) {
        self.cached.entry(block.bytes).or_default().push(block.address);
        self.cached_bytes += block.bytes;
    }

    /// Returns the memory that no job declared: cached blocks and resident inputs.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.cached_bytes + self.residents.bytes() + self.arriving_bytes
    }

    pub(super) fn evict_residents(&mut self) {
        for block in self.residents.evict_all() {
            self.cache(block);
        }
    }

    /// Returns the part of this executor's share that no other job can have now.
    pub(super) fn taken(&self) -> u64 {
        self.used_bytes + self.moving_bytes + self.local_bytes
    }

    /// Returns the local memory that the driver would allocate in addition.
    pub(super) fn growth(&self, local: u64) -> u64 {
        local.saturating_sub(self.local_bytes)
    }

    /// Accounts for local memory, if it fits into this executor's share and the device's free memory. Returns whether it fits.
    pub(super) fn grow(&mut self, local: u64, free: u64, bytes_max: u64) -> bool {
        let to_come = local.saturating_sub(self.local_bytes_launched);
        let all = self.taken().saturating_add(self.kept_bytes()).saturating_add(self.growth(local));
        let fits = to_come <= free && all <= bytes_max;
        if fits {
            self.local_bytes = self.local_bytes.max(local);
        }
        fits
    }

    /// Reserves bytes of this executor's share. Returns whether it has that many left.
    pub(super) fn reserve(&mut self, bytes: u64, bytes_max: u64) -> bool {
        let fits = self.taken() + self.kept_bytes() + bytes <= bytes_max;
        if fits {
            self.moving_bytes += bytes;
        }
        fits
    }

    /// Records that reserved memory was allocated.
    pub(super) fn got(&mut self, bytes: u64) {
        self.moving_bytes -= bytes;
        self.used_bytes += bytes;
    }

    /// Takes out what exceeds `cache_bytes_max`: first cached blocks, the largest first, then the least recently used inputs. They count
    /// towards the share until they are freed.
    pub(super) fn surplus(&mut self, cache_bytes_max: u64) -> Vec<DeviceBuffer> {
        let mut surplus = Vec::new();
        while self.kept_bytes() > cache_bytes_max
            && let Some(block) = self.take_largest().or_else(|| self.residents.evict_oldest())
        {
            self.moving_bytes += block.bytes;
            surplus.push(block);
        }
        surplus
    }

    fn take_largest(&mut self) -> Option<DeviceBuffer> {
        loop {
            let largest = *self.cached.last_key_value()?.0;
            if let Some(block) = self.reuse(largest) {
                self.used_bytes -= block.bytes;
                return Some(block);
            }
            self.cached.remove(&largest);
        }
    }

    /// Returns the memory that a job could have if it were alone: the device's free memory, or the rest of the share if that is less.
    pub(super) fn free(&self, device_bytes: u64, bytes_max: u64) -> u64 {
        let to_come = self.local_bytes.saturating_sub(self.local_bytes_launched);
        (device_bytes.saturating_sub(to_come) + self.kept_bytes()).min(bytes_max.saturating_sub(self.taken()))
    }
}
