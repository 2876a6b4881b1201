//! Pinned memory: plain memory of the program, which the library knows as pinned.

use std::{
    alloc::{self, Layout},
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use gpufleet_surface::status::{Answer, Status};

use crate::contexts;

const PAGE_BYTES: usize = 4096;
/// Flags of `cuMemHostAlloc`: portable, mapped and write-combined, which have no effect here.
const ALLOCATE_FLAGS: u32 = 0b111;
/// Flags of `cuMemHostRegister`: portable, mapped and read-only, and memory-mapped I/O, which is refused.
const REGISTER_FLAGS: u32 = 0b1011;
const REGISTER_IO_MEMORY: u32 = 0b100;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) base: usize,
    pub(crate) bytes: usize,
    pub(crate) flags: u32,
    pub(crate) context: u64,
    /// For memory that the library allocated.
    pub(crate) layout: Option<Layout>,
}

static BLOCKS: Mutex<BTreeMap<usize, Block>> = Mutex::new(BTreeMap::new());

fn blocks() -> MutexGuard<'static, BTreeMap<usize, Block>> {
    BLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the block with an address.
pub(crate) fn find(address: usize) -> Option<Block> {
    let blocks = blocks();
    let (_, block) = blocks.range(..=address).next_back()?;
    (address - block.base < block.bytes).then_some(*block)
}

pub(crate) fn allocate(bytes: usize, flags: u32) -> Answer<usize> {
    let context = contexts::current()?;
    if bytes == 0 || flags & !ALLOCATE_FLAGS != 0 {
        return Err(Status::InvalidValue);
    }
    let layout = Layout::from_size_align(bytes, PAGE_BYTES).map_err(|_| Status::OutOfMemory)?;
    // SAFETY: the layout has a size.
    let pointer = unsafe { alloc::alloc_zeroed(layout) };
    if pointer.is_null() {
        return Err(Status::OutOfMemory);
    }
    let base = pointer.expose_provenance();
    blocks().insert(base, Block { base, bytes, flags, context, layout: Some(layout) });
    Ok(base)
}

pub(crate) fn free(pointer: usize) -> Answer {
    contexts::current()?;
    let layout = blocks().get(&pointer).and_then(|block| block.layout).ok_or(Status::InvalidValue)?;
    blocks().remove(&pointer);
    // SAFETY: the memory was allocated with this layout and is in no list any more.
    unsafe { alloc::dealloc(std::ptr::with_exposed_provenance_mut(pointer), layout) };
    Ok(())
}

pub(crate) fn register(pointer: usize, bytes: usize, flags: u32) -> Answer {
    let context = contexts::current()?;
    if pointer == 0 || bytes == 0 || flags & !(REGISTER_FLAGS | REGISTER_IO_MEMORY) != 0 {
        return Err(Status::InvalidValue);
    }
    if flags & REGISTER_IO_MEMORY != 0 {
        return Err(Status::NotSupported);
    }
    let end = pointer.checked_add(bytes).ok_or(Status::InvalidValue)?;
    let mut blocks = blocks();
    let overlaps = blocks.range(..end).next_back().is_some_and(|(_, block)| block.base + block.bytes > pointer);
    if overlaps {
        return Err(Status::HostMemoryAlreadyRegistered);
    }
    blocks.insert(pointer, Block { base: pointer, bytes, flags, context, layout: None });
    Ok(())
}

pub(crate) fn unregister(pointer: usize) -> Answer {
    contexts::current()?;
    let mut blocks = blocks();
    match blocks.get(&pointer) {
        Some(Block { layout: None, .. }) => {
            blocks.remove(&pointer);
            Ok(())
        }
        _ => Err(Status::HostMemoryNotRegistered),
    }
}
