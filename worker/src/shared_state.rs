//! A lock for state that all deliveries share; a panic under the lock ends the process.
//!
//! Such a panic leaves the state half changed. With a poisoned lock, every later delivery would panic too and be requeued, again and again
//! until its delivery limit. When the process ends instead, each of its messages loses only one delivery, and the broker redelivers it.

use std::{
    ops::{Deref, DerefMut},
    process,
    sync::{Mutex, MutexGuard},
    thread,
};

use tracing::error;

#[derive(Debug, Default)]
pub(crate) struct SharedState<T>(Mutex<T>);

/// The locked state. If a panic that began under the lock drops it, the process ends.
#[derive(Debug)]
pub(crate) struct Locked<'a, T> {
    state: MutexGuard<'a, T>,
    /// Whether a panic began before the lock was taken. It has not damaged the state, so destructors that run during it may still use the
    /// state.
    panicked_before: bool,
}

impl<T> SharedState<T> {
    pub(crate) const fn new(state: T) -> Self {
        Self(Mutex::new(state))
    }

    pub(crate) fn lock(&self) -> Locked<'_, T> {
        let state = self.0.lock().expect("a panic under the lock ends the process");
        Locked { state, panicked_before: thread::panicking() }
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.state
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.state
    }
}

impl<T> Drop for Locked<'_, T> {
    fn drop(&mut self) {
        if thread::panicking() && !self.panicked_before {
            abort();
        }
    }
}

/// Ends the process when a panic drops it; for a task that no message can do without.
#[derive(Debug)]
pub(crate) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            abort();
        }
    }
}

fn abort() -> ! {
    error!("a panic damaged state that all jobs share, aborting; the broker will redeliver their messages");
    process::abort();
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    struct Counts<'a>(&'a SharedState<u32>);

    impl Drop for Counts<'_> {
        fn drop(&mut self) {
            *self.0.lock() += 1;
        }
    }

    #[test]
    fn what_a_panic_elsewhere_drops_may_use_the_state() {
        let state = SharedState::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let _counts = Counts(&state);
            panic!("elsewhere");
        }));
        assert!(outcome.is_err());
        assert_eq!(*state.lock(), 1);
    }
}
