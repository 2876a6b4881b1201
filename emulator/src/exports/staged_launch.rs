//! C functions that put a launch together call by call (`cuParamSetv`, `cuLaunchGrid`). `cuLaunchKernel` has replaced
//! them, but NVIDIA's drivers still have them.

use gpufleet_surface::argument::In;

use crate::driver::{
    function::Function,
    handle::Handle,
    library,
    status::{Answer, Status},
    submission::launch_staged,
    texture::reference,
};

/// `CU_PARAM_TR_DEFAULT`, the only valid texture unit, because the module says where a reference is used.
const DEFAULT_UNIT: i32 = -1;

pub(super) fn cuFuncSetBlockShape(function: Handle, x: i32, y: i32, z: i32) -> Answer {
    let block = [size(x)?, size(y)?, size(z)?];
    library::find_function(function)?.staged().block = block;
    Ok(())
}

pub(super) fn cuFuncSetSharedSize(function: Handle, bytes: u32) -> Answer {
    library::find_function(function)?.staged().dynamic_shared = bytes;
    Ok(())
}

pub(super) fn cuParamSetSize(function: Handle, bytes: u32) -> Answer {
    let function = library::find_function(function)?;
    function.staged().set_params_bytes(function.params_bytes_max(), bytes)
}

pub(super) fn cuParamSeti(function: Handle, offset: i32, value: u32) -> Answer {
    set_param(&*library::find_function(function)?, offset, &value.to_le_bytes())
}

pub(super) fn cuParamSetf(function: Handle, offset: i32, value: f32) -> Answer {
    set_param(&*library::find_function(function)?, offset, &value.to_le_bytes())
}

pub(super) fn cuParamSetv(function: Handle, offset: i32, value: In<u8>, bytes: u32) -> Answer {
    set_param(&*library::find_function(function)?, offset, value.bytes(bytes as usize)?)
}

pub(super) fn cuParamSetTexRef(function: Handle, unit: i32, reference: Handle) -> Answer {
    library::find_function(function)?;
    reference::find(reference)?;
    if unit == DEFAULT_UNIT { Ok(()) } else { Err(Status::InvalidValue) }
}

pub(super) fn cuLaunch(function: Handle) -> Answer {
    launch_staged(function, &*library::find_function(function)?, [1, 1], 0)
}

pub(super) fn cuLaunchGrid(function: Handle, width: i32, height: i32) -> Answer {
    let grid = [size(width)?, size(height)?];
    launch_staged(function, &*library::find_function(function)?, grid, 0)
}

pub(super) fn cuLaunchGridAsync(function: Handle, width: i32, height: i32, stream: Handle) -> Answer {
    let grid = [size(width)?, size(height)?];
    launch_staged(function, &*library::find_function(function)?, grid, stream)
}

fn set_param(function: &Function, offset: i32, value: &[u8]) -> Answer {
    let offset = u32::try_from(offset).map_err(|_| Status::InvalidValue)?;
    function.staged().set_param(function.params_bytes_max(), offset, value)
}

/// Converts an extent of a grid or a block.
fn size(extent: i32) -> Answer<u32> {
    u32::try_from(extent).ok().filter(|extent| *extent > 0).ok_or(Status::InvalidValue)
}
