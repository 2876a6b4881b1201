//! What happens around each exported function.

use std::{cell::Cell, panic::AssertUnwindSafe};

use gpufleet_surface::status::{Answer, code_of};

use crate::session;

thread_local! {
    static IS_TWIN: Cell<bool> = const { Cell::new(false) };
}

/// Calls that work without a session.
const ALWAYS: [&str; 6] =
    ["cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString", "cuGetProcAddress", "cuGetProcAddress_v2"];

/// Runs the body of a function and returns its code.
pub(crate) fn boundary(symbol: &str, body: impl FnOnce() -> Answer) -> i32 {
    code_of(AssertUnwindSafe(|| {
        if !ALWAYS.contains(&symbol) {
            session::check()?;
        }
        body()
    }))
}

/// Runs a call with the default stream of the calling thread.
pub(crate) fn with_own_default(call: impl FnOnce() -> i32) -> i32 {
    IS_TWIN.set(true);
    let code = call();
    IS_TWIN.set(false);
    code
}

/// Reports whether the call is for programs with a default stream per thread.
pub(crate) fn is_twin() -> bool {
    IS_TWIN.get()
}
