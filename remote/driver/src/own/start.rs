//! The start, the driver's version, and the control of profilers, which has no effect.

use gpufleet_surface::{
    argument::Out,
    status::{Answer, Status},
};

use crate::{contexts, session};

/// The version of a library that has no session yet: the newest CUDA whose programs start (CUDA 13.0).
const DRIVER_VERSION: i32 = 13_000;

pub(crate) fn cuInit(flags: u32) -> Answer {
    if flags == 0 { session::open() } else { Err(Status::InvalidValue) }
}

pub(crate) fn cuDriverGetVersion(version: Out<i32>) -> Answer {
    version.fill(|| Ok(session::facts().map_or(DRIVER_VERSION, |facts| facts.driver_version.min(DRIVER_VERSION))))
}

pub(crate) fn cuProfilerStart() -> Answer {
    contexts::current().map(drop)
}

pub(crate) fn cuProfilerStop() -> Answer {
    contexts::current().map(drop)
}
