//! The shape of a launch, and its checks.

use super::{
    limits::{DeviceLimits, KernelLimits},
    occupancy,
};
use crate::status::{Answer, Status};

/// The shape of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub dynamic_shared: u32,
}

impl Shape {
    /// Checks that the device can run the kernel in this shape.
    pub fn check(&self, device: &DeviceLimits, kernel: &KernelLimits) -> Answer {
        let within =
            |sizes: [u32; 3], most: [u32; 3]| sizes.iter().zip(most).all(|(size, most)| (1..=most).contains(size));
        if !within(self.grid, device.grid_max) || !within(self.block, device.block_max) {
            return Err(Status::InvalidValue);
        }
        // Each dimension is at most 1024, so the product fits.
        let threads = self.block.iter().product::<u32>();
        if threads > kernel.block_threads_max {
            return Err(Status::InvalidValue);
        }
        if kernel.required_block.is_some_and(|required| required != self.block) {
            return Err(Status::InvalidValue);
        }
        if self.dynamic_shared > kernel.dynamic_shared_max {
            return Err(Status::InvalidValue);
        }
        Ok(())
    }

    /// Checks that all blocks can be resident on the device at once.
    pub fn check_residence(&self, device: &DeviceLimits, kernel: &KernelLimits) -> Answer {
        let most = self.resident_blocks(device, kernel)?;
        let blocks = self.grid.iter().map(|size| u64::from(*size)).product::<u64>();
        if blocks <= most { Ok(()) } else { Err(Status::CooperativeLaunchTooLarge) }
    }

    /// Returns the number of blocks that can be resident at once.
    pub fn resident_blocks(&self, device: &DeviceLimits, kernel: &KernelLimits) -> Answer<u64> {
        let threads = self.block.iter().product::<u32>().cast_signed();
        let shared = self.dynamic_shared as usize;
        let resident = occupancy::blocks_per_multiprocessor(device, kernel, threads, shared)?;
        Ok(u64::from(resident) * u64::from(device.multiprocessors))
    }
}
