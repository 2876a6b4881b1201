//! Calls on streams.

pub mod object;
pub mod scope;

use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering},
};

use super::{
    capture,
    context::{Context, contexts},
    current, driver,
    faults::Site,
    handle::Handle,
    injection,
    status::{Answer, Status},
};
use crate::memory::confinement::Confinement;
use object::{PRIORITIES, Stream, StreamKind, streams};

/// Handle of the legacy default stream (`CU_STREAM_LEGACY`); null means it too.
pub const LEGACY: Handle = 1;
/// Handle of the calling thread's default stream (`CU_STREAM_PER_THREAD`).
pub const PER_THREAD: Handle = 2;

thread_local! {
    /// True during a call in which null means the thread's own default stream.
    static OWN_DEFAULT: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call in which null means the calling thread's own default stream.
pub fn with_own_default<T>(call: impl FnOnce() -> T) -> T {
    // A host function on this thread may make driver calls in between.
    let before = OWN_DEFAULT.replace(true);
    let result = call();
    OWN_DEFAULT.set(before);
    result
}

/// Creates a stream in the current context.
pub fn create(flags: u32, priority: i32) -> Answer<Handle> {
    let kind = StreamKind::from_flags(flags)?;
    let (least, greatest) = PRIORITIES;
    let context = current::context()?;
    injection::call(&context, Site::Stream)?;
    let stream = context.new_stream(kind, priority.clamp(greatest, least));
    let handle = stream.handle;
    streams()?.insert(handle, stream);
    Ok(handle)
}

/// Removes the handle; work in flight runs to its end.
pub fn destroy(handle: Handle) -> Answer {
    let stream = streams()?.remove(handle)?;
    capture::abandon(&stream);
    Ok(())
}

/// Returns the stream behind a handle, special ones included, and its context; an error if the context has a fault.
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
            let stream = streams()?.get(handle)?;
            let context = contexts()?.get(stream.context).map_err(|_| Status::ContextIsDestroyed)?;
            context.check()?;
            Ok((context, stream))
        }
    }
}

/// Waits until all work of the stream has ended.
pub fn synchronize(handle: Handle) -> Answer {
    let (context, stream) = find(handle)?;
    capture::forbid_waiting_for(&context, &stream)?;
    context.outstanding(&stream).iter().for_each(|point| point.wait());
    context.check()
}

/// Returns an error unless all work of the stream has ended.
pub fn query(handle: Handle) -> Answer {
    let (context, stream) = find(handle)?;
    capture::forbid_waiting_for(&context, &stream)?;
    if context.outstanding(&stream).is_empty() { context.check() } else { Err(Status::NotReady) }
}

/// Confines the later kernels of a stream to the allocations that start at these addresses, the variables of their
/// modules, and what they take from the heap; the next such call frees the latter. `None` lifts the confinement.
pub fn confine(stream: Handle, allocations: Option<Vec<u64>>) -> Answer {
    let driver = driver()?;
    if !driver.settings.protects {
        return Err(Status::NotSupported);
    }
    let stream = streams()?.get(stream)?;
    let context = contexts()?.get(stream.context).map_err(|_| Status::ContextIsDestroyed)?;
    stream.scope.replace(allocations.map(Confinement::to), &context.device.memory);
    Ok(())
}

/// Ends the running kernel of a stream as one that ran too long, with a report of where its threads were. It returns
/// immediately, so any thread can call it at any time.
pub fn interrupt(stream: Handle) -> Answer {
    streams()?.get(stream)?.scope.interrupted.store(true, Ordering::Relaxed);
    Ok(())
}
