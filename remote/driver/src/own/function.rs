//! Attributes, and block sizes, for which the program may have a function of its own.

use gpufleet_remote::kinds::Function;
use gpufleet_surface::{
    argument::Out,
    callback::SharedOfBlock,
    launch::{
        limits::DeviceLimits,
        occupancy::{BlockSize, best_block_size},
    },
    status::{Answer, Status},
};

use super::device;
use crate::{functions, rows};

pub(crate) fn cuFuncSetAttribute(function: Function, attribute: u32, value: i32) -> Answer {
    functions::forget(function);
    rows::cuFuncSetAttribute(function, attribute, value)
}

pub(crate) fn cuOccupancyMaxPotentialBlockSize(
    grid: Out<i32>,
    block: Out<i32>,
    function: Function,
    shared_of_block: Option<SharedOfBlock>,
    shared: usize,
    limit: i32,
) -> Answer {
    let shared_of = |threads: u32| match shared_of_block {
        // SAFETY: the program vouches for its function.
        Some(of) => unsafe { of(threads.cast_signed()) },
        None => shared,
    };
    let BlockSize { grid: best_grid, block: best_block } =
        best_block_size(&device_limits()?, &functions::facts(function)?.limits, shared_of, limit)?;
    grid.fill(|| Ok(best_grid.cast_signed()))?;
    block.fill(|| Ok(best_block.cast_signed()))
}

pub(crate) fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    grid: Out<i32>,
    block: Out<i32>,
    function: Function,
    shared_of_block: Option<SharedOfBlock>,
    shared: usize,
    limit: i32,
    flags: u32,
) -> Answer {
    let _ = flags;
    cuOccupancyMaxPotentialBlockSize(grid, block, function, shared_of_block, shared, limit)
}

/// The limits of the device, by the numbers of `CU_DEVICE_ATTRIBUTE_*`.
pub(super) fn device_limits() -> Answer<DeviceLimits> {
    let value = |number| u32::try_from(device::attribute(number)?).map_err(|_| Status::InvalidValue);
    Ok(DeviceLimits {
        block_threads_max: value(1)?,
        block_max: [value(2)?, value(3)?, value(4)?],
        grid_max: [value(5)?, value(6)?, value(7)?],
        shared_bytes_opt_in: value(97)?,
        shared_bytes_reserved: value(111)?,
        shared_bytes_per_multiprocessor: value(81)?,
        threads_per_multiprocessor: value(39)?,
        blocks_per_multiprocessor: value(106)?,
        registers_per_multiprocessor: value(82)?,
        registers_per_block: value(12)?,
        multiprocessors: value(16)?,
    })
}
