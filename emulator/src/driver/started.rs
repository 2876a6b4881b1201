//! Whether the driver has started. Before that, calls answer [`Status::NotInitialized`].

use std::sync::atomic::{AtomicBool, Ordering};

use super::status::{Answer, Status};

static STARTED: AtomicBool = AtomicBool::new(false);

pub(super) fn set() {
    STARTED.store(true, Ordering::Release);
}

pub fn check() -> Answer {
    if STARTED.load(Ordering::Acquire) { Ok(()) } else { Err(Status::NotInitialized) }
}
