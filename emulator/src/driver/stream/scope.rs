//! What a program says about the kernels of one stream, each of which belongs to one job at a time: the memory that they
//! may reach, and that they are to end. Only the emulator has such calls.

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
    /// Its kernels are to end.
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

/// From now on the kernels of a stream reach the allocations that start at these addresses, the variables of their modules
/// and what they take from the heap, which is freed with the next such call; without addresses, everything.
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

/// Ends the kernel that runs in a stream as one that ran too long, with a report that says where its threads were. What it
/// waits for is not waited for, so that any thread can do this at any time.
pub fn interrupt(stream: Handle) -> Answer {
    streams()?.get(stream)?.scope.interrupted.store(true, Ordering::Relaxed);
    Ok(())
}
