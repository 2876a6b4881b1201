//! C functions that launch kernels (`cuLaunchKernel` and so on).

use gpufleet_surface::{
    argument::In,
    launch::{arguments::Arguments, shape::Shape},
    structs::launch::{LaunchAttribute, LaunchConfig},
};

use crate::driver::{
    handle::Handle,
    launch::Request,
    status::{Answer, Status},
    submission::launch,
};

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`.
pub(super) const COOPERATIVE: u32 = 2;
/// Attributes with the required and the preferred shape of clusters.
pub(super) const CLUSTER_SHAPES: [u32; 2] = [4, 11];
/// Attributes without effect here, because they are hints or permissions: none, access policy, synchronization policy,
/// cluster scheduling, overlap with the previous kernel, priority, domains of memory fences, the carve-out.
pub(super) const HINTS: [u32; 9] = [0, 1, 3, 5, 6, 8, 9, 10, 14];

pub(super) fn cuLaunchKernel(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: Handle,
    parameters: In<*const u8>,
    extra: In<usize>,
) -> Answer {
    let request = Request {
        function,
        shape: Shape {
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            dynamic_shared: shared_bytes,
        },
        stream,
        cooperative: false,
    };
    submit(&request, parameters, extra)
}

pub(super) fn cuLaunchCooperativeKernel(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: Handle,
    parameters: In<*const u8>,
) -> Answer {
    let request = Request {
        function,
        shape: Shape {
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            dynamic_shared: shared_bytes,
        },
        stream,
        cooperative: true,
    };
    submit(&request, parameters, In::from_address(0))
}

pub(super) fn cuLaunchKernelEx(
    config: In<LaunchConfig>,
    function: Handle,
    parameters: In<*const u8>,
    extra: In<usize>,
) -> Answer {
    let config = config.get()?;
    let mut cooperative = false;
    for index in 0..config.attribute_count as usize {
        let LaunchAttribute { id, padding: _, value } = config.attributes.at(index)?;
        match id {
            COOPERATIVE => cooperative = value[0] as u32 != 0,
            id if CLUSTER_SHAPES.contains(&id) => check_cluster(value)?,
            id if HINTS.contains(&id) => {}
            _ => return Err(Status::NotSupported),
        }
    }
    let request = Request {
        function,
        shape: Shape { grid: config.grid, block: config.block, dynamic_shared: config.shared_bytes },
        stream: config.stream,
        cooperative,
    };
    submit(&request, parameters, extra)
}

/// Allows clusters of one block, which need no support.
pub(super) fn check_cluster([x_y, z, ..]: [u64; 8]) -> Answer {
    let shape = [x_y as u32, (x_y >> 32) as u32, z as u32];
    if shape == [1, 1, 1] { Ok(()) } else { Err(Status::InvalidClusterSize) }
}

fn submit(request: &Request, parameters: In<*const u8>, extra: In<usize>) -> Answer {
    let arguments = Arguments::of(parameters, extra)?;
    // SAFETY: the caller of the exported function vouches for its arguments.
    unsafe { launch(request, arguments) }
}
