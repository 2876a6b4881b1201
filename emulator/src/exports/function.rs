//! C functions for functions (`cuFunc*`) and occupancy (`cuOccupancy*`).

use std::ffi::c_char;

use gpufleet_surface::{
    argument::Out,
    callback::SharedOfBlock,
    launch::occupancy::{self, BlockSize},
};

use crate::driver::{
    current,
    function::Function,
    handle::Handle,
    library,
    status::{Answer, Status},
};

/// `CU_FUNCTION_LOADING_STATE_LOADED`, the only state, because modules are loaded eagerly.
const LOADED: u32 = 1;

pub(super) fn cuFuncGetAttribute(value: Out<i32>, attribute: u32, function: Handle) -> Answer {
    value.fill(|| library::find_function(function)?.attribute(attribute, current::context()?.device))
}

pub(super) fn cuFuncSetAttribute(function: Handle, attribute: u32, value: i32) -> Answer {
    library::find_function(function)?.set_attribute(attribute, value, current::context()?.device)
}

pub(super) fn cuFuncSetCacheConfig(function: Handle, config: u32) -> Answer {
    let _ = config;
    library::find_function(function).map(drop)
}

pub(super) fn cuFuncSetSharedMemConfig(function: Handle, config: u32) -> Answer {
    let _ = config;
    library::find_function(function).map(drop)
}

pub(super) fn cuFuncGetModule(module: Out<Handle>, function: Handle) -> Answer {
    module.fill(|| Ok(library::find_function(function)?.module))
}

pub(super) fn cuFuncGetName(name: Out<*const c_char>, function: Handle) -> Answer {
    name.fill(|| Ok(library::find_function(function)?.name.as_ptr()))
}

pub(super) fn cuFuncGetParamInfo(function: Handle, index: usize, offset: Out<usize>, bytes: Out<usize>) -> Answer {
    let function = library::find_function(function)?;
    let param = function.entry.params.get(index).ok_or(Status::InvalidValue)?;
    offset.fill(|| Ok(param.offset as usize))?;
    bytes.set(param.bytes as usize);
    Ok(())
}

pub(super) fn cuFuncIsLoaded(state: Out<u32>, function: Handle) -> Answer {
    state.fill(|| library::find_function(function).map(|_| LOADED))
}

pub(super) fn cuFuncLoad(function: Handle) -> Answer {
    library::find_function(function).map(drop)
}

pub(super) fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: Out<i32>,
    function: Handle,
    block: i32,
    shared: usize,
) -> Answer {
    blocks.fill(|| active_blocks(function, block, shared))
}

pub(super) fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: Out<i32>,
    function: Handle,
    block: i32,
    shared: usize,
    flags: u32,
) -> Answer {
    let _ = flags;
    blocks.fill(|| active_blocks(function, block, shared))
}

pub(super) fn cuOccupancyMaxPotentialBlockSize(
    grid: Out<i32>,
    block: Out<i32>,
    function: Handle,
    shared_of_block: Option<SharedOfBlock>,
    shared: usize,
    limit: i32,
) -> Answer {
    best_block(grid, block, &*library::find_function(function)?, shared_of_block, shared, limit)
}

pub(super) fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    grid: Out<i32>,
    block: Out<i32>,
    function: Handle,
    shared_of_block: Option<SharedOfBlock>,
    shared: usize,
    limit: i32,
    flags: u32,
) -> Answer {
    let _ = flags;
    best_block(grid, block, &*library::find_function(function)?, shared_of_block, shared, limit)
}

pub(super) fn cuOccupancyAvailableDynamicSMemPerBlock(
    bytes: Out<usize>,
    function: Handle,
    blocks: i32,
    block: i32,
) -> Answer {
    bytes.fill(|| {
        let device = &current::context()?.device.limits;
        occupancy::available_dynamic_shared(device, &library::find_function(function)?.limits(device), blocks, block)
    })
}

fn active_blocks(function: Handle, block: i32, shared: usize) -> Answer<i32> {
    let device = &current::context()?.device.limits;
    let kernel = library::find_function(function)?.limits(device);
    let blocks = occupancy::blocks_per_multiprocessor(device, &kernel, block, shared)?;
    Ok(blocks.cast_signed())
}

fn best_block(
    grid: Out<i32>,
    block: Out<i32>,
    function: &Function,
    shared_of_block: Option<SharedOfBlock>,
    shared: usize,
    limit: i32,
) -> Answer {
    let device = &current::context()?.device.limits;
    let shared_of = |threads: u32| match shared_of_block {
        // SAFETY: the caller vouches for its function.
        Some(of) => unsafe { of(threads.cast_signed()) },
        None => shared,
    };
    let BlockSize { grid: best_grid, block: best_block } =
        occupancy::best_block_size(device, &function.limits(device), shared_of, limit)?;
    grid.fill(|| Ok(best_grid.cast_signed()))?;
    block.fill(|| Ok(best_block.cast_signed()))
}
