//! Whether the driver has started. Before that, and in a forked child, calls return [`Status::NotInitialized`].

use std::sync::atomic::{AtomicBool, Ordering};

use super::status::{Answer, Status};

static STARTED: AtomicBool = AtomicBool::new(false);
/// Set in a child of a process that had started the driver, because the threads that run its work do not exist there.
static FORKED: AtomicBool = AtomicBool::new(false);

pub(super) fn set() {
    if STARTED.swap(true, Ordering::AcqRel) {
        return;
    }
    // SAFETY: the handler stores to a flag, which is allowed in a child. If it can't be registered, only a child
    // notices.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

extern "C" fn forked() {
    FORKED.store(true, Ordering::Release);
}

pub fn check() -> Answer {
    if STARTED.load(Ordering::Acquire) { check_process() } else { Err(Status::NotInitialized) }
}

/// Returns an error in a forked child, which can't use the driver.
pub fn check_process() -> Answer {
    if FORKED.load(Ordering::Acquire) { Err(Status::NotInitialized) } else { Ok(()) }
}
