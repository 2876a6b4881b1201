//! C functions that launch kernels (`cuLaunchKernel` and so on).

use gpufleet_surface::{
    argument::In,
    structs::launch::{LaunchAttribute, LaunchConfig},
};

use crate::driver::{
    handle::Handle,
    launch::{Arguments, Request},
    status::{Answer, Status},
    submission::launch,
};

/// Keys of the `extra` list (`CU_LAUNCH_PARAM_*`): end, buffer, size of the buffer.
const EXTRA_END: usize = 0;
const EXTRA_BUFFER: usize = 1;
const EXTRA_BYTES: usize = 2;
/// Maximum elements of the list: both keys with their values, and the end.
const EXTRA_LENGTH_MAX: usize = 5;
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
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        dynamic_shared: shared_bytes,
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
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        dynamic_shared: shared_bytes,
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
        grid: config.grid,
        block: config.block,
        dynamic_shared: config.shared_bytes,
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
    let arguments = arguments(parameters, extra)?;
    // SAFETY: the caller of the exported function vouches for its arguments.
    unsafe { launch(request, arguments) }
}

/// Returns the arguments, which a caller passes in one of two forms.
pub(super) fn arguments(parameters: In<*const u8>, extra: In<usize>) -> Answer<Arguments> {
    match (parameters.is_null(), extra.is_null()) {
        (false, true) => Ok(Arguments::Pointers(parameters.pointer())),
        (true, false) => packed(extra),
        (true, true) => Ok(Arguments::None),
        (false, false) => Err(Status::InvalidValue),
    }
}

fn packed(extra: In<usize>) -> Answer<Arguments> {
    let (mut pointer, mut bytes) = (None, None);
    for index in (0..EXTRA_LENGTH_MAX).step_by(2) {
        match extra.at(index)? {
            EXTRA_END => break,
            EXTRA_BUFFER => pointer = Some(extra.at(index + 1)?),
            EXTRA_BYTES => bytes = Some(size(extra.at(index + 1)?)?),
            _ => return Err(Status::InvalidValue),
        }
    }
    let (pointer, bytes) = pointer.zip(bytes).ok_or(Status::InvalidValue)?;
    Ok(Arguments::Packed { pointer: std::ptr::with_exposed_provenance(pointer), bytes })
}

fn size(pointer: usize) -> Answer<usize> {
    In::<usize>::from_address(pointer).get()
}
