//! Callbacks: functions of the caller that the driver calls.

use std::fmt;

use gpufleet_surface::callback::HostFunction;

/// A callback with its argument. It may run on a thread other than the one that passed it.
#[derive(Clone, Copy)]
pub struct HostCall {
    pub function: HostFunction,
    pub data: usize,
}

impl HostCall {
    pub fn run(self) {
        // SAFETY: the caller of the driver API vouches for its function and for what it passes through.
        unsafe { (self.function)(std::ptr::with_exposed_provenance_mut(self.data)) };
    }
}

impl fmt::Debug for HostCall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HostCall").field("data", &self.data).finish_non_exhaustive()
    }
}
