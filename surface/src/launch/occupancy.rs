//! Occupancy: how many blocks of a kernel fit on a multiprocessor of a real device with these limits. Programs choose
//! their block size by it.

use super::limits::{DeviceLimits, KernelLimits, WARP_THREADS};
use crate::status::{Answer, Status};

/// Number of registers in the unit in which a warp's registers are allocated.
const REGISTER_PORTION: u32 = 256;

/// A block size, and the smallest grid that fills the device with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSize {
    pub grid: u32,
    pub block: u32,
}

/// Returns the number of blocks that can be resident on a multiprocessor.
pub fn blocks_per_multiprocessor(
    device: &DeviceLimits,
    kernel: &KernelLimits,
    block: i32,
    dynamic_shared: usize,
) -> Answer<u32> {
    let threads = u32::try_from(block).ok().filter(|threads| *threads > 0).ok_or(Status::InvalidValue)?;
    if threads > kernel.block_threads_max {
        return Ok(0);
    }
    let warps = threads.div_ceil(WARP_THREADS);
    let by_threads = device.threads_per_multiprocessor / (warps * WARP_THREADS);
    let warp_registers = (kernel.registers * WARP_THREADS).next_multiple_of(REGISTER_PORTION);
    let by_registers = device.registers_per_multiprocessor / (warps * warp_registers).max(1);
    let by_shared = blocks_by_shared(device, kernel, dynamic_shared);
    Ok(by_threads.min(by_registers).min(by_shared).min(device.blocks_per_multiprocessor))
}

/// Returns the block size with the most threads on a multiprocessor; the largest of several.
pub fn best_block_size(
    device: &DeviceLimits,
    kernel: &KernelLimits,
    dynamic_shared: impl Fn(u32) -> usize,
    limit: i32,
) -> Answer<BlockSize> {
    let limit = u32::try_from(limit).map_err(|_| Status::InvalidValue)?;
    let most = kernel.block_threads_max;
    let most = if limit == 0 { most } else { most.min(limit) };
    let mut best = (0, BlockSize { grid: 0, block: 0 });
    for block in (1..=most.div_ceil(WARP_THREADS)).map(|warps| (warps * WARP_THREADS).min(most)).rev() {
        let blocks = blocks_per_multiprocessor(device, kernel, block.cast_signed(), dynamic_shared(block))?;
        if blocks * block > best.0 {
            best = (blocks * block, BlockSize { grid: blocks * device.multiprocessors, block });
        }
    }
    if best.0 == 0 { Err(Status::InvalidValue) } else { Ok(best.1) }
}

/// Returns the dynamic shared memory in bytes that each of `blocks` blocks on one multiprocessor can have.
pub fn available_dynamic_shared(
    device: &DeviceLimits,
    kernel: &KernelLimits,
    blocks: i32,
    block: i32,
) -> Answer<usize> {
    let blocks = u32::try_from(blocks).ok().filter(|blocks| *blocks > 0).ok_or(Status::InvalidValue)?;
    if blocks > blocks_per_multiprocessor(device, kernel, block, 0)? {
        return Err(Status::InvalidValue);
    }
    let share = device.shared_bytes_per_multiprocessor / blocks;
    let share = share.saturating_sub(device.shared_bytes_reserved).min(device.shared_bytes_opt_in);
    Ok(share.saturating_sub(kernel.shared_bytes) as usize)
}

fn blocks_by_shared(device: &DeviceLimits, kernel: &KernelLimits, dynamic_shared: usize) -> u32 {
    let own = u64::from(kernel.shared_bytes) + dynamic_shared as u64;
    if own > u64::from(device.shared_bytes_opt_in) {
        return 0;
    }
    let block_bytes = own + u64::from(device.shared_bytes_reserved);
    u64::from(device.shared_bytes_per_multiprocessor)
        .checked_div(block_bytes)
        .map_or(u32::MAX, |blocks| u32::try_from(blocks).unwrap_or(u32::MAX))
}
