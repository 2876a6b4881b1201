//! Launches that are put together call by call. The library keeps their parts until the last call, which becomes a
//! launch.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use gpufleet_remote::{
    kinds::{Function, Stream, TextureReference},
    roles::{Extra, Packed, Parameters},
};
use gpufleet_surface::{
    argument::In,
    status::{Answer, Status},
};

use crate::{functions, rows};

/// `CU_PARAM_TR_DEFAULT`, the only valid texture unit, because the module says where a reference is used.
const DEFAULT_UNIT: i32 = -1;
/// Maximum bytes of a kernel's parameters.
const PARAMETER_BYTES_MAX: usize = 32_764;

#[derive(Debug, Clone)]
struct Staged {
    block: [u32; 3],
    shared_bytes: u32,
    parameters: Vec<u8>,
}

impl Default for Staged {
    fn default() -> Self {
        Self { block: [1; 3], shared_bytes: 0, parameters: Vec::new() }
    }
}

static STAGED: Mutex<Option<HashMap<u64, Staged>>> = Mutex::new(None);

fn with<T>(function: Function, work: impl FnOnce(&mut Staged) -> Answer<T>) -> Answer<T> {
    functions::facts(function)?;
    let mut staged = STAGED.lock().unwrap_or_else(PoisonError::into_inner);
    work(staged.get_or_insert_default().entry(function.0).or_default())
}

pub(crate) fn cuFuncSetBlockShape(function: Function, x: i32, y: i32, z: i32) -> Answer {
    let block = [size(x)?, size(y)?, size(z)?];
    with(function, |staged| {
        staged.block = block;
        Ok(())
    })
}

pub(crate) fn cuFuncSetSharedSize(function: Function, bytes: u32) -> Answer {
    with(function, |staged| {
        staged.shared_bytes = bytes;
        Ok(())
    })
}

pub(crate) fn cuParamSetSize(function: Function, bytes: u32) -> Answer {
    with(function, |staged| resize(staged, bytes as usize))
}

pub(crate) fn cuParamSeti(function: Function, offset: i32, value: u32) -> Answer {
    set(function, offset, &value.to_le_bytes())
}

pub(crate) fn cuParamSetf(function: Function, offset: i32, value: f32) -> Answer {
    set(function, offset, &value.to_le_bytes())
}

pub(crate) fn cuParamSetv(function: Function, offset: i32, value: In<u8>, bytes: u32) -> Answer {
    functions::facts(function)?;
    set(function, offset, value.bytes(bytes as usize)?)
}

pub(crate) fn cuParamSetTexRef(function: Function, unit: i32, reference: TextureReference) -> Answer {
    let _ = reference;
    functions::facts(function)?;
    if unit == DEFAULT_UNIT { Ok(()) } else { Err(Status::InvalidValue) }
}

pub(crate) fn cuLaunch(function: Function) -> Answer {
    launch(function, [1, 1], Stream(0))
}

pub(crate) fn cuLaunchGrid(function: Function, width: i32, height: i32) -> Answer {
    launch(function, [size(width)?, size(height)?], Stream(0))
}

pub(crate) fn cuLaunchGridAsync(function: Function, width: i32, height: i32, stream: Stream) -> Answer {
    launch(function, [size(width)?, size(height)?], stream)
}

fn launch(function: Function, grid: [u32; 2], stream: Stream) -> Answer {
    let Staged { block, shared_bytes, parameters } = with(function, |staged| Ok(staged.clone()))?;
    let mut packed = Packed::new(parameters);
    let ([x, y], [block_x, block_y, block_z], none) = (grid, block, Parameters(In::NULL));
    let extra = Extra(packed.extra());
    rows::cuLaunchKernel(function, x, y, 1, block_x, block_y, block_z, shared_bytes, stream, none, extra)
}

fn set(function: Function, offset: i32, value: &[u8]) -> Answer {
    let offset = usize::try_from(offset).map_err(|_| Status::InvalidValue)?;
    with(function, |staged| {
        if staged.parameters.len() < offset + value.len() {
            resize(staged, offset + value.len())?;
        }
        staged.parameters[offset..][..value.len()].copy_from_slice(value);
        Ok(())
    })
}

fn resize(staged: &mut Staged, bytes: usize) -> Answer {
    if bytes > PARAMETER_BYTES_MAX {
        return Err(Status::InvalidValue);
    }
    staged.parameters.resize(bytes, 0);
    Ok(())
}

/// Converts an extent of a grid or a block.
fn size(extent: i32) -> Answer<u32> {
    u32::try_from(extent).ok().filter(|extent| *extent > 0).ok_or(Status::InvalidValue)
}
