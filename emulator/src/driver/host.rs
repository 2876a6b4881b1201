//! The list of pinned host memory, which kernels reach at its own address.

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

/// Every pinned block, by its start.
#[derive(Debug, Default)]
pub struct HostMemory {
    blocks: RwLock<BTreeMap<usize, HostBlock>>,
}

/// A pinned block.
#[derive(Debug, Clone, Copy)]
pub struct HostBlock {
    pub base: usize,
    pub bytes: usize,
    pub flags: u32,
    pub context: Handle,
    /// Set when the block was allocated here, and has to be given back here.
    pub layout: Option<Layout>,
}

impl HostBlock {
    /// Gives the memory back, if it was allocated here. Called once, after the block has left the list.
    pub(super) fn release(self) {
        if let Some(layout) = self.layout {
            // SAFETY: the block came from the allocator with this layout, and has just left the list, so it is freed once.
            unsafe { alloc::dealloc(std::ptr::with_exposed_provenance_mut(self.base), layout) };
        }
    }
}

impl HostMemory {
    /// The block that holds an address.
    pub fn find(&self, address: usize) -> Option<HostBlock> {
        let blocks = self.read();
        let (_, block) = blocks.range(..=address).next_back()?;
        (address - block.base < block.bytes).then_some(*block)
    }

    /// Is all of this range pinned? Blocks are looked at one by one: a range across two is taken as not pinned.
    pub fn covers(&self, address: usize, bytes: usize) -> bool {
        self.find(address).is_some_and(|block| bytes <= block.bytes - (address - block.base))
    }

    /// Gives back every block of a context that has ended.
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

    /// Adds a block, which every device can reach from now on.
    pub fn add(&self, pointer: *mut u8, block: HostBlock, devices: &[Device]) -> Answer {
        let end = block.base.checked_add(block.bytes).ok_or(Status::InvalidValue)?;
        let mut blocks = self.write();
        let before = blocks.range(..end).next_back();
        if before.is_some_and(|(_, before)| before.base + before.bytes > block.base) {
            return Err(Status::HostMemoryAlreadyRegistered);
        }
        for (index, device) in devices.iter().enumerate() {
            if !device.memory.map_host(pointer, block.bytes as u64) {
                // The range lies in device memory, which needs no registration.
                for mapped in &devices[..index] {
                    mapped.memory.unmap_host(pointer);
                }
                return Err(Status::InvalidValue);
            }
        }
        blocks.insert(block.base, block);
        Ok(())
    }

    /// Takes a block out, if it matches. The caller releases it.
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
