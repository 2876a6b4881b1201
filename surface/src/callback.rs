//! Functions of the caller that a driver calls.

use std::ffi::c_void;

use crate::kinds::Stream;

/// `CUhostFn`.
pub type HostFunction = unsafe extern "C" fn(data: *mut c_void);

/// `CUstreamCallback`.
pub type Callback = unsafe extern "C" fn(stream: Stream, status: i32, data: *mut c_void);

/// `CUoccupancyB2DSize`: returns the dynamic shared memory for a block size.
pub type SharedOfBlock = unsafe extern "C" fn(block: i32) -> usize;
