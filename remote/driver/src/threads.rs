//! Threads of the program: each has a number, and a stack of contexts.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicU32, Ordering},
};

use crate::link;

static NEXT: AtomicU32 = AtomicU32::new(1);

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::new(Thread::new());
}

struct Thread {
    number: u32,
    contexts: Vec<u64>,
}

impl Thread {
    fn new() -> Self {
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), contexts: Vec::new() }
    }
}

impl Drop for Thread {
    /// The session's thread ends too.
    fn drop(&mut self) {
        link::thread_ended(self.number);
    }
}

/// Returns the number of the calling thread. A thread that is ending has none of its own.
pub(crate) fn number() -> u32 {
    THREAD.try_with(|thread| thread.borrow().number).unwrap_or(0)
}

/// Returns the handle of the current context.
pub(crate) fn context() -> Option<u64> {
    with(|contexts| contexts.last().copied())
}

pub(crate) fn with<T: Default>(work: impl FnOnce(&mut Vec<u64>) -> T) -> T {
    THREAD.try_with(|thread| work(&mut thread.borrow_mut().contexts)).unwrap_or_default()
}
