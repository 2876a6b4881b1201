//! Pinned host memory: allocated here or registered by the caller, reachable by kernels at its own address.

use std::{
    alloc::{self, Layout},
    collections::BTreeMap,
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use super::{
    capture, current, driver,
    handle::Handle,
    injection,
    status::{Answer, Status},
};

/// Pages are what gets pinned.
const PAGE_BYTES: usize = 4096;
/// Portable, mapped, write-combined: hints that change nothing here.
const ALLOCATE_FLAGS: u32 = 0b111;
/// Portable, mapped, device memory-mapped I/O, read-only; the third does not exist here.
const REGISTER_FLAGS: u32 = 0b1011;
const REGISTER_IO_MEMORY: u32 = 0b100;

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
    layout: Option<Layout>,
}

/// `cuMemHostAlloc`.
pub fn alloc(bytes: usize, flags: u32) -> Answer<usize> {
    let context = current::context()?;
    capture::forbid_unsafe()?;
    if bytes == 0 || flags & !ALLOCATE_FLAGS != 0 {
        return Err(Status::InvalidValue);
    }
    let layout = Layout::from_size_align(bytes, PAGE_BYTES).map_err(|_| Status::OutOfMemory)?;
    // SAFETY: the layout has a size, checked above. Zeroed, as memory of the system would be when it is fresh.
    let pointer = unsafe { alloc::alloc_zeroed(layout) };
    if pointer.is_null() {
        return Err(Status::OutOfMemory);
    }
    let block = HostBlock { base: pointer.addr(), bytes, flags, context: context.handle, layout: Some(layout) };
    driver()?.host.add(pointer, block).inspect_err(|_| release(block))?;
    Ok(block.base)
}

/// `cuMemFreeHost`: work in flight may still copy there, so it ends first.
pub fn free(pointer: usize) -> Answer {
    let context = current::context()?;
    capture::forbid_unsafe()?;
    injection::wait(&context)?;
    let block = driver()?.host.remove(pointer, |block| block.layout.is_some()).ok_or(Status::InvalidValue)?;
    release(block);
    Ok(())
}

/// `cuMemHostRegister`.
pub fn register(pointer: *mut u8, bytes: usize, flags: u32) -> Answer {
    let context = current::context()?;
    capture::forbid_unsafe()?;
    if pointer.is_null() || bytes == 0 || flags & !(REGISTER_FLAGS | REGISTER_IO_MEMORY) != 0 {
        return Err(Status::InvalidValue);
    }
    if flags & REGISTER_IO_MEMORY != 0 {
        return Err(Status::NotSupported);
    }
    let block = HostBlock { base: pointer.addr(), bytes, flags, context: context.handle, layout: None };
    driver()?.host.add(pointer, block)
}

/// `cuMemHostUnregister`.
pub fn unregister(pointer: usize) -> Answer {
    let context = current::context()?;
    capture::forbid_unsafe()?;
    injection::wait(&context)?;
    let removed = driver()?.host.remove(pointer, |block| block.layout.is_none());
    removed.map(drop).ok_or(Status::HostMemoryNotRegistered)
}

/// The block around an address, or the error that the driver gives for memory that is not pinned.
pub fn block(pointer: usize) -> Answer<HostBlock> {
    current::context()?;
    driver()?.host.find(pointer).ok_or(Status::InvalidValue)
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
    pub fn free_all_of(&self, context: Handle) {
        let blocks = self.read();
        let owned = blocks.values().filter(|block| block.context == context).map(|block| block.base);
        let owned = owned.collect::<Vec<_>>();
        drop(blocks);
        for base in owned {
            if let Some(block) = self.remove(base, |_| true) {
                release(block);
            }
        }
    }

    fn add(&self, pointer: *mut u8, block: HostBlock) -> Answer {
        let end = block.base.checked_add(block.bytes).ok_or(Status::InvalidValue)?;
        let mut blocks = self.write();
        let before = blocks.range(..end).next_back();
        if before.is_some_and(|(_, before)| before.base + before.bytes > block.base) {
            return Err(Status::HostMemoryAlreadyRegistered);
        }
        for device in &driver()?.devices {
            let mapped = device.memory.map_host(pointer, block.bytes as u64);
            // The range lies in device memory, which needs no registration.
            mapped.then_some(()).ok_or(Status::InvalidValue)?;
        }
        blocks.insert(block.base, block);
        Ok(())
    }

    fn remove(&self, base: usize, matches: impl FnOnce(&HostBlock) -> bool) -> Option<HostBlock> {
        let mut blocks = self.write();
        let block = blocks.get(&base).copied().filter(matches)?;
        blocks.remove(&base);
        for device in &driver().ok()?.devices {
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

fn release(block: HostBlock) {
    if let Some(layout) = block.layout {
        // SAFETY: the block came from the allocator with this layout, and has just left the list, so it is freed once.
        unsafe { alloc::dealloc(std::ptr::with_exposed_provenance_mut(block.base), layout) };
    }
}
