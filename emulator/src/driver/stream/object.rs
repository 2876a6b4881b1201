//! Stream objects: a queue with a kind and a priority. The priority is stored and reported, but host threads ignore it.

use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicI32, Ordering},
};

use super::scope::Scope;
use crate::driver::{
    handle::{Handle, Registry, fresh},
    queue::Queue,
    started,
    status::{Answer, Status},
};

/// Least and greatest priority that a device reports.
pub const PRIORITIES: (i32, i32) = (0, -5);

/// How a stream is ordered relative to the legacy default stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    Legacy,
    Blocking,
    NonBlocking,
}

/// An in-order stream of a context.
#[derive(Debug)]
pub struct Stream {
    pub handle: Handle,
    pub context: Handle,
    pub kind: StreamKind,
    priority: AtomicI32,
    pub queue: Arc<Queue>,
    pub scope: Scope,
}

/// Returns the registry of streams that callers created.
pub fn streams() -> Answer<&'static Registry<Stream>> {
    static STREAMS: LazyLock<Registry<Stream>> = LazyLock::new(Registry::default);
    started::check().map(|()| &*STREAMS)
}

impl Stream {
    pub fn new(context: Handle, kind: StreamKind, priority: i32) -> Self {
        Self {
            handle: fresh(),
            context,
            kind,
            priority: AtomicI32::new(priority),
            queue: Queue::new(),
            scope: Scope::default(),
        }
    }

    pub fn priority(&self) -> i32 {
        self.priority.load(Ordering::Relaxed)
    }

    /// Sets the priority, clamped to the device's range.
    pub fn set_priority(&self, priority: i32) {
        let (least, greatest) = PRIORITIES;
        self.priority.store(priority.clamp(greatest, least), Ordering::Relaxed);
    }

    /// Returns the flags of `cuStreamCreate`.
    pub fn flags(&self) -> u32 {
        u32::from(self.kind == StreamKind::NonBlocking)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl StreamKind {
    pub fn from_flags(flags: u32) -> Answer<Self> {
        match flags {
            0 => Ok(Self::Blocking),
            1 => Ok(Self::NonBlocking),
            _ => Err(Status::InvalidValue),
        }
    }
}
