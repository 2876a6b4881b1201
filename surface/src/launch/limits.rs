//! Limits that launches keep to.

/// Threads of a warp.
pub const WARP_THREADS: u32 = 32;

/// The limits of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceLimits {
    pub block_threads_max: u32,
    pub block_max: [u32; 3],
    pub grid_max: [u32; 3],
    /// Maximum shared memory of a block in bytes, with the function attribute set.
    pub shared_bytes_opt_in: u32,
    /// Shared memory in bytes that the system reserves for each block.
    pub shared_bytes_reserved: u32,
    pub shared_bytes_per_multiprocessor: u32,
    pub threads_per_multiprocessor: u32,
    pub blocks_per_multiprocessor: u32,
    pub registers_per_multiprocessor: u32,
    pub registers_per_block: u32,
    pub multiprocessors: u32,
}

/// The limits of one kernel on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelLimits {
    pub block_threads_max: u32,
    /// The only shape of blocks that the kernel allows.
    pub required_block: Option<[u32; 3]>,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of static shared memory of a block.
    pub shared_bytes: u32,
    /// Maximum bytes of dynamic shared memory of a block.
    pub dynamic_shared_max: u32,
}
