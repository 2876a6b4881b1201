//! A counting allocator, for tests of the memory that decoding needs.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// Counts the current and the peak memory of the current thread. A block that grows counts twice while it is copied.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    HELD.with(|held| {
        held.set(held.get() + bytes);
        PEAK.with(|peak| peak.set(peak.get().max(held.get())));
    });
}

// SAFETY: every call goes to the system allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller meets the requirements of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller meets the requirements of the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `work`. Returns the peak memory of this thread above the memory before, and the result.
pub fn peak_of<T>(work: impl FnOnce() -> T) -> (isize, T) {
    let before = HELD.get();
    PEAK.set(before);
    let done = work();
    (PEAK.get() - before, done)
}
