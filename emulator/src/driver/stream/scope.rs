//! The scope of a stream: the job that its kernels belong to, which limits the memory that they reach and can be ended.
//! Only the emulator has scopes.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use crate::memory::{Memory, confinement::Confinement};

/// The job of a stream.
#[derive(Debug, Default)]
pub struct Scope {
    confinement: Mutex<Option<Arc<Confinement>>>,
    /// Set when the stream's kernel has to end.
    pub interrupted: AtomicBool,
}

impl Scope {
    pub fn confinement(&self) -> Option<Arc<Confinement>> {
        self.lock().clone()
    }

    /// Begins the next job: ends the confinement of the one before, and frees what it left on the heap.
    pub fn replace(&self, next: Option<Confinement>, memory: &Memory) {
        self.interrupted.store(false, Ordering::Relaxed);
        let before = std::mem::replace(&mut *self.lock(), next.map(Arc::new));
        if let Some(before) = before {
            before.end(memory);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Confinement>>> {
        self.confinement.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
