//! The contexts that the session made, and the stack of current ones. Which context is current is the program's own
//! affair: each call says in which one it is made.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use gpufleet_surface::status::{Answer, Status};

use crate::threads;

static KNOWN: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

fn known() -> std::sync::MutexGuard<'static, BTreeSet<u64>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a context.
pub(crate) fn add(context: u64) {
    known().insert(context);
}

/// Removes a context that was destroyed.
pub(crate) fn remove(context: u64) {
    known().remove(&context);
    threads::with(|stack| stack.retain(|held| *held != context));
}

/// Returns the current context; an error if there is none.
pub(crate) fn current() -> Answer<u64> {
    let context = threads::context().ok_or(Status::InvalidContext)?;
    if known().contains(&context) { Ok(context) } else { Err(Status::ContextIsDestroyed) }
}

/// Checks that a context exists.
pub(crate) fn check(context: u64) -> Answer {
    if known().contains(&context) { Ok(()) } else { Err(Status::InvalidContext) }
}

/// Replaces the current context; null removes it.
pub(crate) fn set(context: u64) -> Answer {
    if context != 0 {
        check(context)?;
    }
    threads::with(|stack| {
        stack.pop();
        stack.extend((context != 0).then_some(context));
    });
    Ok(())
}

pub(crate) fn push(context: u64) -> Answer {
    check(context)?;
    threads::with(|stack| stack.push(context));
    Ok(())
}

pub(crate) fn pop() -> Answer<u64> {
    threads::with(Vec::pop).ok_or(Status::InvalidContext)
}
