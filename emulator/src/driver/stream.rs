//! The calls on streams.

pub mod object;
pub mod scope;

use std::{cell::Cell, sync::Arc};

use super::{
    capture,
    context::{Context, contexts},
    current,
    faults::Site,
    handle::Handle,
    injection,
    status::{Answer, Status},
};
use object::{PRIORITIES, Stream, StreamKind, streams};

/// The handle of the legacy default stream, beside null.
pub const LEGACY: Handle = 1;
/// The handle of the calling thread's own default stream.
pub const PER_THREAD: Handle = 2;

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
    streams()?.insert(handle, stream);
    Ok(handle)
}

/// Ends the handle; what is in flight still runs to its end.
pub fn destroy(handle: Handle) -> Answer {
    let stream = streams()?.remove(handle)?;
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
            let stream = streams()?.get(handle)?;
            let context = contexts()?.get(stream.context).map_err(|_| Status::ContextIsDestroyed)?;
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
