//! C functions for start, driver version and profiler control.

use gpufleet_surface::argument::Out;

use super::exports;
use crate::driver::{self, current, status::Status};

/// Reported driver version: the newest CUDA whose programs start (CUDA 13.0). The exported functions are those of 12.8;
/// programs look newer ones up by name and work without them.
pub(super) const DRIVER_VERSION: i32 = 13_000;

exports! {
    fn cuInit(flags: u32) {
        if flags == 0 { driver::start() } else { Err(Status::InvalidValue) }
    }

    fn cuDriverGetVersion(version: Out<i32>) {
        version.fill(|| Ok(DRIVER_VERSION))
    }

    fn cuProfilerStart() {
        current::context().map(drop)
    }

    fn cuProfilerStop() {
        current::context().map(drop)
    }
}
