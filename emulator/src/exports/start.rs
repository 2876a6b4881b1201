//! C functions for start, driver version and profiler control.

use gpufleet_surface::argument::Out;

use crate::driver::{
    self, current,
    status::{Answer, Status},
};

/// Reported driver version: the newest CUDA whose programs start (CUDA 13.0). The exported functions are those of 12.8;
/// programs look newer ones up by name and work without them.
pub(super) const DRIVER_VERSION: i32 = 13_000;

pub(super) fn cuInit(flags: u32) -> Answer {
    if flags == 0 { driver::start() } else { Err(Status::InvalidValue) }
}

pub(super) fn cuDriverGetVersion(version: Out<i32>) -> Answer {
    version.fill(|| Ok(DRIVER_VERSION))
}

pub(super) fn cuProfilerStart() -> Answer {
    current::context().map(drop)
}

pub(super) fn cuProfilerStop() -> Answer {
    current::context().map(drop)
}
