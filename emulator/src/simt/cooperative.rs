//! The workspace of a cooperative launch, through which its blocks synchronise.
//!
//! The device code of `cooperative_groups` implements the grid barrier itself: it adds to a word of a workspace that
//! the driver provides, and spins until the top bit of the word changes.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::memory::Memory;

/// Layout of the workspace, as device code declares it: its own size, then the barrier.
const WORKSPACE: Layout = Layout::new::<[u32; 2]>();

/// The workspace of one launch, mapped into device memory for the duration of the launch.
#[derive(Debug)]
pub struct Workspace<'a> {
    memory: &'a Memory,
    words: NonNull<u8>,
}

impl Workspace<'_> {
    pub fn new(memory: &Memory) -> Workspace<'_> {
        // SAFETY: the layout has a size.
        let words = NonNull::new(unsafe { alloc_zeroed(WORKSPACE) }).unwrap_or_else(|| handle_alloc_error(WORKSPACE));
        // SAFETY: the words were just allocated, and no other reference to them exists yet.
        unsafe { words.cast::<u32>().write(WORKSPACE.size() as u32) };
        let mapped = memory.map_host(words.as_ptr(), WORKSPACE.size() as u64);
        assert!(mapped, "memory that was just allocated overlaps nothing that is mapped");
        Workspace { memory, words }
    }

    pub fn address(&self) -> u64 {
        self.words.as_ptr() as u64
    }
}

impl Drop for Workspace<'_> {
    fn drop(&mut self) {
        self.memory.unmap_host(self.words.as_ptr());
        // SAFETY: allocated in `new` with this layout, and no kernel can reach it any more.
        unsafe { dealloc(self.words.as_ptr(), WORKSPACE) };
    }
}
