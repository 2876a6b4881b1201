//! Limits of a device by compute capability: block and grid sizes, shared memory, threads and registers. Source: CUDA
//! C++ Programming Guide, table "Technical Specifications per Compute Capability".

use gpufleet_surface::launch::limits::DeviceLimits;

use crate::module::ComputeCapability;

/// Shared memory of a block in bytes, unless the kernel opts in to more.
pub const SHARED_BYTES_DEFAULT: u32 = 48 << 10;
/// Shared memory in bytes that the system reserves for each block, from compute capability 8.0 on.
const SHARED_BYTES_RESERVED: u32 = 1 << 10;
/// Maximum constant memory of a module, in bytes.
pub const CONSTANT_BYTES: u32 = 64 << 10;

/// Returns the limits of a device of this compute capability and size.
pub fn of(capability: ComputeCapability, multiprocessors: u32) -> DeviceLimits {
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
    let shared_bytes_reserved = if capability.major >= 8 { SHARED_BYTES_RESERVED } else { 0 };
    let shared_bytes_per_multiprocessor = shared_per_multiprocessor << 10;
    let shared_bytes_opt_in = match capability.major {
        // Before 7.0 a block can't opt in to more.
        ..=6 => SHARED_BYTES_DEFAULT,
        _ => shared_bytes_per_multiprocessor - shared_bytes_reserved,
    };
    DeviceLimits {
        block_threads_max: 1024,
        block_max: [1024, 1024, 64],
        grid_max: [i32::MAX.cast_unsigned(), 65_535, 65_535],
        shared_bytes_opt_in,
        shared_bytes_reserved,
        shared_bytes_per_multiprocessor,
        threads_per_multiprocessor: threads,
        blocks_per_multiprocessor: blocks,
        registers_per_multiprocessor: 64 << 10,
        registers_per_block: 64 << 10,
        multiprocessors,
    }
}
