//! A buffer in device memory.

use cudarc::driver::sys::CUdeviceptr;

/// One buffer's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceBuffer {
    pub address: CUdeviceptr,
    /// The size of the block in bytes, at least the requested size.
    pub bytes: u64,
}
