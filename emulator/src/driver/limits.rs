//! What a device of a compute capability allows: block and grid sizes, shared memory, threads and registers.
//! The figures are those of the CUDA programming guide's table of technical specifications.

use crate::module::ComputeCapability;

/// Lanes of a warp.
pub const WARP_THREADS: u32 = 32;
/// What a kernel may use of shared memory before it asks for more.
pub const SHARED_BYTES_DEFAULT: u32 = 48 << 10;
/// What the system keeps of shared memory for each block, from 8.0 on.
pub const SHARED_BYTES_RESERVED: u32 = 1 << 10;
/// Constant memory of a module.
pub const CONSTANT_BYTES: u32 = 64 << 10;

/// The limits of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub block_threads_max: u32,
    pub block_max: [u32; 3],
    pub grid_max: [u32; 3],
    /// Per block, with the function attribute set.
    pub shared_bytes_opt_in: u32,
    pub shared_bytes_per_multiprocessor: u32,
    pub threads_per_multiprocessor: u32,
    pub blocks_per_multiprocessor: u32,
    pub registers_per_multiprocessor: u32,
    pub registers_per_block: u32,
}

impl Limits {
    pub fn of(capability: ComputeCapability) -> Self {
        let (shared_per_multiprocessor, threads, blocks) = match (capability.major, capability.minor) {
            (..=6, _) => (64, 2048, 32),
            (7, ..=2) => (96, 2048, 32),
            (7, _) => (64, 1024, 16),
            (8, 0) => (164, 2048, 32),
            (8, 7) => (164, 1536, 16),
            (8, 6) => (100, 1536, 16),
            (8, _) => (100, 1536, 24),
            (9..=10, _) => (228, 2048, 32),
            _ => (100, 1536, 24),
        };
        let reserved = if capability.major >= 8 { SHARED_BYTES_RESERVED } else { 0 };
        let shared_bytes_per_multiprocessor = shared_per_multiprocessor << 10;
        let shared_bytes_opt_in = match capability.major {
            // Before 7.0 a block had no way to ask for more.
            ..=6 => SHARED_BYTES_DEFAULT,
            _ => shared_bytes_per_multiprocessor - reserved,
        };
        Self {
            block_threads_max: 1024,
            block_max: [1024, 1024, 64],
            grid_max: [i32::MAX.cast_unsigned(), 65_535, 65_535],
            shared_bytes_opt_in,
            shared_bytes_per_multiprocessor,
            threads_per_multiprocessor: threads,
            blocks_per_multiprocessor: blocks,
            registers_per_multiprocessor: 64 << 10,
            registers_per_block: 64 << 10,
        }
    }
}
