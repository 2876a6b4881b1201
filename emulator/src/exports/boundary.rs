//! The C boundary: what happens before and after the body of each exported function.

use std::panic::UnwindSafe;

use gpufleet_surface::status::code_of;

use crate::driver::{injection, output, started, status::Answer};

/// Calls that forked children may make too, because they need no device.
const IN_CHILDREN: [&str; 3] = ["cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString"];

/// Runs the body of an exported function and returns its code.
pub(super) fn boundary(name: &str, body: impl FnOnce() -> Answer + UnwindSafe) -> i32 {
    // Checked first, because locks of the driver may have been held in the parent when it forked.
    match started::check_process() {
        Err(status) if !IN_CHILDREN.contains(&name) => return status.code(),
        _ => {}
    }
    injection::wait_while_held(name);
    output::write_before(name);
    let code = code_of(body);
    output::write_after(name);
    code
}
