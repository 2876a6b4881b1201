//! Streams: a queue with a kind and a priority. The priority is kept and told, but threads of the host do not follow it.

use std::{
    cell::Cell,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
};

use super::{
    capture::{self, Part},
    context::Context,
    current, driver,
    handle::{Handle, fresh},
    injection::{self, Site},
    queue::Queue,
    status::{Answer, Status},
};

/// The handle of the legacy default stream, beside null.
pub const LEGACY: Handle = 1;
/// The handle of the calling thread's own default stream.
pub const PER_THREAD: Handle = 2;
/// The range that a device tells: least and greatest.
pub const PRIORITIES: (i32, i32) = (0, -5);

/// How a stream orders itself against the legacy default stream.
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
    part: Mutex<Option<Part>>,
}

impl Stream {
    pub fn new(context: Handle, kind: StreamKind, priority: i32) -> Self {
        Self {
            handle: fresh(),
            context,
            kind,
            priority: AtomicI32::new(priority),
            queue: Queue::new(),
            part: Mutex::default(),
        }
    }

    pub fn priority(&self) -> i32 {
        self.priority.load(Ordering::Relaxed)
    }

    /// Sets the priority, cut to the range of the device.
    pub fn set_priority(&self, priority: i32) {
        let (least, greatest) = PRIORITIES;
        self.priority.store(priority.clamp(greatest, least), Ordering::Relaxed);
    }

    /// Its part in a capture, while it is captured.
    pub fn part(&self) -> MutexGuard<'_, Option<Part>> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The flags that `cuStreamCreate` takes.
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

thread_local! {
    /// Whether null means the thread's own default stream, in the call that the thread is making.
    static OWN_DEFAULT: Cell<bool> = const { Cell::new(false) };
}

/// Makes a call in which null means the calling thread's own default stream.
pub fn with_own_default<T>(call: impl FnOnce() -> T) -> T {
    // A call of the caller's own may come in between, from a host function that runs on this thread.
    let before = OWN_DEFAULT.replace(true);
    let result = call();
    OWN_DEFAULT.set(before);
    result
}

/// Makes a stream in the current context.
pub fn create(flags: u32, priority: i32) -> Answer<Handle> {
    let kind = StreamKind::from_flags(flags)?;
    let (least, greatest) = PRIORITIES;
    let context = current::context()?;
    injection::call(&context, Site::Stream)?;
    let stream = context.new_stream(kind, priority.clamp(greatest, least));
    let handle = stream.handle;
    driver()?.streams.insert(handle, stream);
    Ok(handle)
}

/// Ends the handle; what is in flight still runs to its end.
pub fn destroy(handle: Handle) -> Answer {
    let stream = driver()?.streams.remove(handle)?;
    capture::abandon(&stream);
    Ok(())
}

/// The stream behind a handle, special ones included, with its context. Neither is faulted.
pub fn find(handle: Handle) -> Answer<(Arc<Context>, Arc<Stream>)> {
    match handle {
        0 if OWN_DEFAULT.get() => find(PER_THREAD),
        0 | LEGACY => {
            let context = current::context()?;
            let stream = Arc::clone(&context.legacy);
            Ok((context, stream))
        }
        PER_THREAD => {
            let context = current::context()?;
            let stream = current::thread_stream(&context);
            Ok((context, stream))
        }
        _ => {
            let driver = driver()?;
            let stream = driver.streams.get(handle)?;
            let context = driver.contexts.get(stream.context).map_err(|_| Status::ContextIsDestroyed)?;
            context.check()?;
            Ok((context, stream))
        }
    }
}

/// Waits until everything in the stream has ended.
pub fn synchronize(handle: Handle) -> Answer {
    let (context, stream) = find(handle)?;
    capture::forbid_waiting_for(&context, &stream)?;
    context.outstanding(&stream).iter().for_each(|point| point.wait());
    context.check()
}

/// Has everything in the stream ended?
pub fn query(handle: Handle) -> Answer {
    let (context, stream) = find(handle)?;
    capture::forbid_waiting_for(&context, &stream)?;
    if context.outstanding(&stream).is_empty() { context.check() } else { Err(Status::NotReady) }
}
