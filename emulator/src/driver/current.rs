//! Current contexts: each thread has a stack of them, as the driver API defines, and a default stream of its own in
//! each context.

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use super::{
    context::{Context, contexts},
    driver,
    handle::Handle,
    status::{Answer, Status},
    stream::object::{Stream, StreamKind},
};

thread_local! {
    static STACK: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
    static STREAMS: RefCell<HashMap<Handle, Arc<Stream>>> = RefCell::default();
}

/// Returns the current context; an error if it is unusable.
pub fn context() -> Answer<Arc<Context>> {
    let contexts = contexts()?;
    let handle = handle().ok_or(Status::InvalidContext)?;
    let context = contexts.get(handle).map_err(|_| Status::ContextIsDestroyed)?;
    context.check()?;
    Ok(context)
}

/// Returns the current context's handle, even if the context is unusable.
pub fn handle() -> Option<Handle> {
    STACK.with_borrow(|stack| stack.last().copied())
}

/// Replaces the context on top of the stack; null removes it.
pub fn set(handle: Handle) -> Answer {
    let contexts = contexts()?;
    if handle != 0 {
        contexts.get(handle).map_err(|_| Status::InvalidContext)?;
    }
    STACK.with_borrow_mut(|stack| {
        stack.pop();
        stack.extend((handle != 0).then_some(handle));
    });
    Ok(())
}

pub fn push(handle: Handle) -> Answer {
    contexts()?.get(handle).map_err(|_| Status::InvalidContext)?;
    STACK.with_borrow_mut(|stack| stack.push(handle));
    Ok(())
}

pub fn pop() -> Answer<Handle> {
    driver()?;
    STACK.with_borrow_mut(Vec::pop).ok_or(Status::InvalidContext)
}

/// Removes a context that ends from the calling thread's stack.
pub fn forget(handle: Handle) {
    STACK.with_borrow_mut(|stack| stack.retain(|held| *held != handle));
}

/// Returns the calling thread's default stream in a context; it ends with the thread.
pub fn thread_stream(context: &Arc<Context>) -> Arc<Stream> {
    STREAMS.with_borrow_mut(|streams| {
        let stream = streams.entry(context.handle);
        Arc::clone(stream.or_insert_with(|| context.new_stream(StreamKind::Blocking, 0)))
    })
}
