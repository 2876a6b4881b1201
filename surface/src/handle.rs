//! Handles that callers hold: numbers that are never reused and are looked up on every call. So a stale or invented
//! handle is an error code, not a crash.

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::status::{Answer, Status};

/// A handle as it crosses the C boundary: pointer-sized, opaque, never dereferenced.
pub type Handle = usize;

/// The first handle. Lower numbers are special streams in the C headers, and look like null pointers.
const FIRST_HANDLE: usize = 0x1000;
/// Step between handles, like that of aligned pointers, because some callers keep tags in the low bits.
const HANDLE_STEP: usize = 0x10;

static NEXT: AtomicUsize = AtomicUsize::new(FIRST_HANDLE);

/// Returns a new handle. All kinds share one sequence, so a stream's handle is never valid as an event's.
pub fn fresh() -> Handle {
    NEXT.fetch_add(HANDLE_STEP, Ordering::Relaxed)
}

/// The live objects of one kind, by handle.
#[derive(Debug)]
pub struct Registry<T> {
    objects: RwLock<HashMap<Handle, Arc<T>>>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self { objects: RwLock::default() }
    }
}

impl<T> Registry<T> {
    /// Adds an object under a handle from [`fresh`].
    pub fn insert(&self, handle: Handle, object: Arc<T>) {
        self.write().insert(handle, object);
    }

    /// Returns the live object behind a handle.
    pub fn get(&self, handle: Handle) -> Answer<Arc<T>> {
        self.read().get(&handle).cloned().ok_or(Status::InvalidHandle)
    }

    /// Removes a handle; the object lives while work in flight holds it.
    pub fn remove(&self, handle: Handle) -> Answer<Arc<T>> {
        self.write().remove(&handle).ok_or(Status::InvalidHandle)
    }

    /// Returns the first live handle whose object passes the test.
    pub fn find(&self, test: impl Fn(&T) -> bool) -> Option<Handle> {
        self.read().iter().find_map(|(handle, object)| test(object).then_some(*handle))
    }

    /// Removes every handle whose object fails the test.
    pub fn retain(&self, mut keep: impl FnMut(&T) -> bool) {
        let mut removed = Vec::new();
        // Objects may run code when they are dropped, so they are dropped after the lock is released.
        self.write().retain(|_, object| {
            keep(object) || {
                removed.push(Arc::clone(object));
                false
            }
        });
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<Handle, Arc<T>>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<Handle, Arc<T>>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Registry, fresh};
    use crate::status::Status;

    #[test]
    fn a_removed_handle_is_invalid_and_never_comes_back() {
        let registry = Registry::default();
        let first = fresh();
        registry.insert(first, Arc::new(1));
        assert_eq!(registry.remove(first).as_deref(), Ok(&1));
        registry.insert(fresh(), Arc::new(2));
        assert_eq!(registry.get(first), Err(Status::InvalidHandle));
        assert_eq!(registry.remove(first), Err(Status::InvalidHandle));
    }
}
