//! C functions that put a launch together call by call (`cuParamSetv`, `cuLaunchGrid`). `cuLaunchKernel` has replaced
//! them, but NVIDIA's drivers still have them.

use gpufleet_surface::argument::In;

use super::exports;
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

exports! {
    fn cuFuncSetBlockShape(function: Handle, x: i32, y: i32, z: i32) {
        let block = [size(x)?, size(y)?, size(z)?];
        library::find_function(function)?.staged().block = block;
        Ok(())
    }

    fn cuFuncSetSharedSize(function: Handle, bytes: u32) {
        library::find_function(function)?.staged().dynamic_shared = bytes;
        Ok(())
    }

    fn cuParamSetSize(function: Handle, bytes: u32) {
        let function = library::find_function(function)?;
        function.staged().set_params_bytes(function.params_bytes_max(), bytes)
    }

    fn cuParamSeti(function: Handle, offset: i32, value: u32) {
        set_param(&*library::find_function(function)?, offset, &value.to_le_bytes())
    }

    fn cuParamSetf(function: Handle, offset: i32, value: f32) {
        set_param(&*library::find_function(function)?, offset, &value.to_le_bytes())
    }

    fn cuParamSetv(function: Handle, offset: i32, value: In<u8>, bytes: u32) {
        set_param(&*library::find_function(function)?, offset, value.bytes(bytes as usize)?)
    }

    fn cuParamSetTexRef(function: Handle, unit: i32, reference: Handle) {
        library::find_function(function)?;
        reference::find(reference)?;
        if unit == DEFAULT_UNIT { Ok(()) } else { Err(Status::InvalidValue) }
    }

    fn cuLaunch(function: Handle) {
        launch_staged(function, &*library::find_function(function)?, [1, 1], 0)
    }

    fn cuLaunchGrid(function: Handle, width: i32, height: i32) {
        let grid = [size(width)?, size(height)?];
        launch_staged(function, &*library::find_function(function)?, grid, 0)
    }

    fn cuLaunchGridAsync(function: Handle, width: i32, height: i32, stream: Handle) {
        let grid = [size(width)?, size(height)?];
        launch_staged(function, &*library::find_function(function)?, grid, stream)
    }
}

fn set_param(function: &Function, offset: i32, value: &[u8]) -> Answer {
    let offset = u32::try_from(offset).map_err(|_| Status::InvalidValue)?;
    function.staged().set_param(function.params_bytes_max(), offset, value)
}

/// Converts an extent of a grid or a block.
fn size(extent: i32) -> Answer<u32> {
    u32::try_from(extent).ok().filter(|extent| *extent > 0).ok_or(Status::InvalidValue)
}
