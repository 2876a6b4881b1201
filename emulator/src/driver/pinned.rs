//! Calls that allocate pinned host memory or register the caller's memory as pinned.

use std::alloc::{self, Layout};

use super::{
    capture, current, driver,
    host::HostBlock,
    injection,
    status::{Answer, Status},
};

/// Bytes of a page, the unit of pinning.
const PAGE_BYTES: usize = 4096;
/// Flags of `cuMemHostAlloc`: portable, mapped, write-combined. They are hints without effect here.
const ALLOCATE_FLAGS: u32 = 0b111;
/// Flags of `cuMemHostRegister`: portable, mapped, memory-mapped I/O (refused), read-only.
const REGISTER_FLAGS: u32 = 0b1011;
const REGISTER_IO_MEMORY: u32 = 0b100;

/// `cuMemHostAlloc`.
pub fn alloc(bytes: usize, flags: u32) -> Answer<usize> {
    let context = current::context()?;
    capture::forbid_unsafe()?;
    if bytes == 0 || flags & !ALLOCATE_FLAGS != 0 {
        return Err(Status::InvalidValue);
    }
    let layout = Layout::from_size_align(bytes, PAGE_BYTES).map_err(|_| Status::OutOfMemory)?;
    // SAFETY: the layout has a size, which was checked above. The memory is zeroed, as fresh memory of the system is.
    let pointer = unsafe { alloc::alloc_zeroed(layout) };
    if pointer.is_null() {
        return Err(Status::OutOfMemory);
    }
    let block = HostBlock { base: pointer.addr(), bytes, flags, context: context.handle, layout: Some(layout) };
    let driver = driver()?;
    driver.host.add(pointer, block, &driver.devices).inspect_err(|_| block.release())?;
    Ok(block.base)
}

/// `cuMemFreeHost`. Waits for work in flight, which may still copy there.
pub fn free(pointer: usize) -> Answer {
    let context = current::context()?;
    capture::forbid_unsafe()?;
    injection::wait(&context)?;
    let driver = driver()?;
    let removed = driver.host.remove(pointer, &driver.devices, |block| block.layout.is_some());
    removed.ok_or(Status::InvalidValue)?.release();
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
    let driver = driver()?;
    driver.host.add(pointer, block, &driver.devices)
}

/// `cuMemHostUnregister`.
pub fn unregister(pointer: usize) -> Answer {
    let context = current::context()?;
    capture::forbid_unsafe()?;
    injection::wait(&context)?;
    let driver = driver()?;
    let removed = driver.host.remove(pointer, &driver.devices, |block| block.layout.is_none());
    removed.map(drop).ok_or(Status::HostMemoryNotRegistered)
}

/// Returns the block that contains an address, or the driver's error for memory that is not pinned.
pub fn block(pointer: usize) -> Answer<HostBlock> {
    current::context()?;
    driver()?.host.find(pointer).ok_or(Status::InvalidValue)
}
