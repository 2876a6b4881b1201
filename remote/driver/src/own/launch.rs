//! Launches, whose arguments are packed before they are sent.

use gpufleet_remote::{
    kinds::{Function, Stream},
    roles::{Extra, Parameters},
};
use gpufleet_surface::{
    argument::In,
    launch::{arguments::Arguments, shape::Shape},
    status::Answer,
    structs::launch::{LaunchAttribute, LaunchConfig},
};

use super::function::device_limits;
use crate::{
    contexts,
    functions::{self, with_packed},
    rows,
};

pub(crate) fn cuLaunchKernel(
    function: Function,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: Stream,
    parameters: Parameters,
    extra: Extra,
) -> Answer {
    Arguments::of(parameters.0, extra.0)?;
    check([grid_x, grid_y, grid_z], [block_x, block_y, block_z], shared_bytes, function)?;
    with_packed(function, parameters, extra, |none, extra| {
        rows::cuLaunchKernel(
            function,
            grid_x,
            grid_y,
            grid_z,
            block_x,
            block_y,
            block_z,
            shared_bytes,
            stream,
            none,
            extra,
        )
    })
}

/// This function has no buffer for arguments, so it becomes a launch with an attribute.
pub(crate) fn cuLaunchCooperativeKernel(
    function: Function,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: Stream,
    parameters: Parameters,
) -> Answer {
    // `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`.
    let mut value = [0; 8];
    value[0] = 1;
    let attribute = LaunchAttribute { id: 2, padding: 0, value };
    let config = LaunchConfig {
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        shared_bytes,
        stream: stream.0 as usize,
        // SAFETY: the attribute lives until the call has ended.
        attributes: unsafe { In::from_pointer(&raw const attribute) },
        attribute_count: 1,
    };
    // SAFETY: as above.
    let config = unsafe { In::from_pointer(&raw const config) };
    cuLaunchKernelEx(config, function, parameters, Extra(In::NULL))
}

pub(crate) fn cuLaunchKernelEx(
    config: In<LaunchConfig>,
    function: Function,
    parameters: Parameters,
    extra: Extra,
) -> Answer {
    Arguments::of(parameters.0, extra.0)?;
    if let Ok(LaunchConfig { grid, block, shared_bytes, .. }) = config.get() {
        check(grid, block, shared_bytes, function)?;
    }
    with_packed(function, parameters, extra, |none, extra| rows::cuLaunchKernelEx(config, function, none, extra))
}

/// Checks the shape of a launch here, because its answer comes after the call.
fn check(grid: [u32; 3], block: [u32; 3], dynamic_shared: u32, function: Function) -> Answer {
    contexts::current()?;
    Shape { grid, block, dynamic_shared }.check(&device_limits()?, &functions::facts(function)?.limits)
}
