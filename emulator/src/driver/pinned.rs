//! Pinned host memory: the calls that allocate it here, or register memory of the caller's.

use std::alloc::{self, Layout};

use super::{
    capture, current, driver,
    host::HostBlock,
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
    let driver = driver()?;
    driver.host.add(pointer, block, &driver.devices).inspect_err(|_| block.release())?;
    Ok(block.base)
}

/// `cuMemFreeHost`: work in flight may still copy there, so it ends first.
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

/// The block around an address, or the error that the driver gives for memory that is not pinned.
pub fn block(pointer: usize) -> Answer<HostBlock> {
    current::context()?;
    driver()?.host.find(pointer).ok_or(Status::InvalidValue)
}
