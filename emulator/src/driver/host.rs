//! The pinned host memory of the process, which kernels reach at its own address.

use std::{
    alloc::{self, Layout},
    collections::BTreeMap,
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use super::{
    device::Device,
    handle::Handle,
    status::{Answer, Status},
};

/// All pinned blocks, by start address.
#[derive(Debug, Default)]
pub struct HostMemory {
    blocks: RwLock<BTreeMap<usize, HostBlock>>,
}

/// A block of pinned host memory.
#[derive(Debug, Clone, Copy)]
pub struct HostBlock {
    pub base: usize,
    pub bytes: usize,
    pub flags: u32,
    pub context: Handle,
    /// Layout, if the driver allocated the block and has to free it.
    pub layout: Option<Layout>,
}

impl HostBlock {
    /// Frees the memory if the driver allocated it. Called once, after the block has left the list.
    pub(super) fn release(self) {
        if let Some(layout) = self.layout {
            // SAFETY: the block came from the allocator with this layout, and has just left the list, so it is freed once.
            unsafe { alloc::dealloc(std::ptr::with_exposed_provenance_mut(self.base), layout) };
        }
    }
}

impl HostMemory {
    /// Returns the block that contains an address.
    pub fn find(&self, address: usize) -> Option<HostBlock> {
        let blocks = self.read();
        let (_, block) = blocks.range(..=address).next_back()?;
        (address - block.base < block.bytes).then_some(*block)
    }

    /// Reports whether a range is pinned. Blocks are checked one by one, so a range across two counts as not pinned.
    pub fn covers(&self, address: usize, bytes: usize) -> bool {
        self.find(address).is_some_and(|block| bytes <= block.bytes - (address - block.base))
    }

    /// Frees every block of a context that has ended.
    pub fn free_all_of(&self, context: Handle, devices: &[Device]) {
        let blocks = self.read();
        let owned = blocks.values().filter(|block| block.context == context).map(|block| block.base);
        let owned = owned.collect::<Vec<_>>();
        drop(blocks);
        for base in owned {
            if let Some(block) = self.remove(base, devices, |_| true) {
                block.release();
            }
        }
    }

    /// Adds a block and maps it on every device.
    pub fn add(&self, pointer: *mut u8, block: HostBlock, devices: &[Device]) -> Answer {
        let end = block.base.checked_add(block.bytes).ok_or(Status::InvalidValue)?;
        let mut blocks = self.write();
        let before = blocks.range(..end).next_back();
        if before.is_some_and(|(_, before)| before.base + before.bytes > block.base) {
            return Err(Status::HostMemoryAlreadyRegistered);
        }
        for (index, device) in devices.iter().enumerate() {
            if !device.memory.map_host(pointer, block.bytes as u64) {
                // The range is in device memory, which needs no registration.
                for mapped in &devices[..index] {
                    mapped.memory.unmap_host(pointer);
                }
                return Err(Status::InvalidValue);
            }
        }
        blocks.insert(block.base, block);
        Ok(())
    }

    /// Removes a block, if it matches. The caller releases it.
    pub fn remove(
        &self,
        base: usize,
        devices: &[Device],
        matches: impl FnOnce(&HostBlock) -> bool,
    ) -> Option<HostBlock> {
        let mut blocks = self.write();
        let block = blocks.get(&base).copied().filter(matches)?;
        blocks.remove(&base);
        for device in devices {
            device.memory.unmap_host(std::ptr::with_exposed_provenance_mut(base));
        }
        Some(block)
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<usize, HostBlock>> {
        self.blocks.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<usize, HostBlock>> {
        self.blocks.write().unwrap_or_else(PoisonError::into_inner)
    }
}
