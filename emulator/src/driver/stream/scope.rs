//! Calls that only the emulator has, for the kernels of one stream, which belong to one job at a time: limiting the
//! memory that they reach, and ending them.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use super::object::streams;
use crate::{
    driver::{
        driver,
        handle::Handle,
        status::{Answer, Status},
    },
    memory::{Memory, confinement::Confinement},
};

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

    fn replace(&self, next: Option<Confinement>, memory: &Memory) {
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

/// Confines the later kernels of a stream to the allocations that start at these addresses, the variables of their
/// modules, and what they take from the heap; the next such call frees the latter. `None` lifts the confinement.
pub fn confine(stream: Handle, allocations: Option<Vec<u64>>) -> Answer {
    let driver = driver()?;
    if !driver.settings.protects {
        return Err(Status::NotSupported);
    }
    let stream = streams()?.get(stream)?;
    let context = super::contexts()?.get(stream.context).map_err(|_| Status::ContextIsDestroyed)?;
    stream.scope.replace(allocations.map(Confinement::to), &context.device.memory);
    Ok(())
}

/// Ends the running kernel of a stream as one that ran too long, with a report of where its threads were. It returns
/// immediately, so any thread can call it at any time.
pub fn interrupt(stream: Handle) -> Answer {
    streams()?.get(stream)?.scope.interrupted.store(true, Ordering::Relaxed);
    Ok(())
}
