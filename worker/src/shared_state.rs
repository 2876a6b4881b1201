//! State that all deliveries share, behind a lock under which a panic ends the process.
//!
//! A panic leaves such state half changed. A poisoned lock would make every later delivery panic, too, be requeued and lose one of its
//! deliveries, over and over. The end of the process costs every message that it has one delivery: the broker gives them out again.

use std::{
    ops::{Deref, DerefMut},
    process,
    sync::{Mutex, MutexGuard},
    thread,
};

use tracing::error;

#[derive(Debug, Default)]
pub(crate) struct SharedState<T>(Mutex<T>);

/// The state, locked. Dropped by a panic that began meanwhile, it ends the process.
#[derive(Debug)]
pub(crate) struct Locked<'a, T> {
    state: MutexGuard<'a, T>,
    /// A panic that began earlier has not damaged the state, so destructors that run during it may still use the state.
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

/// Dropped by a panic, it ends the process: for a task without which no message goes on.
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
