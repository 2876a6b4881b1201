//! Whether the driver has started. Before that, and in a forked child, calls answer [`Status::NotInitialized`].

use std::sync::atomic::{AtomicBool, Ordering};

use super::status::{Answer, Status};

static STARTED: AtomicBool = AtomicBool::new(false);
/// Set in a child of a process that had started the driver: the threads that run its work are not there.
static FORKED: AtomicBool = AtomicBool::new(false);

pub(super) fn set() {
    if STARTED.swap(true, Ordering::AcqRel) {
        return;
    }
    // SAFETY: the handler stores to a flag, which is allowed in a child. Without room for the handler, a child would find out later.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

extern "C" fn forked() {
    FORKED.store(true, Ordering::Release);
}

pub fn check() -> Answer {
    if STARTED.load(Ordering::Acquire) { check_process() } else { Err(Status::NotInitialized) }
}

/// A forked child can't use the driver, whatever it calls.
pub fn check_process() -> Answer {
    if FORKED.load(Ordering::Acquire) { Err(Status::NotInitialized) } else { Ok(()) }
}
