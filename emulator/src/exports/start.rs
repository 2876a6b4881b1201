//! Start, version and profiler marks.

use super::{call::Out, exports};
use crate::driver::{self, current, status::Status};

/// The API level that the exported functions follow.
pub(super) const DRIVER_VERSION: i32 = 12_080;

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
