//! Staged launches, as in programs before CUDA 4: a launch is put together call by call (`cuFuncSetBlockShape`,
//! `cuParamSetv`, `cuLaunchGrid`), and the function keeps its block shape, shared memory and parameters until the last
//! call.

use super::{
    function::Function,
    handle::Handle,
    launch::{Arguments, Request},
    status::{Answer, Status},
    submission::launch,
};

/// The settings for the next launch. Later launches reuse them.
#[derive(Debug, Default, Clone)]
pub struct StagedLaunch {
    /// Block shape; zero until it is set, which no launch allows.
    pub block: [u32; 3],
    pub dynamic_shared: u32,
    /// The parameter block of the kernel, zero where the caller has set nothing; empty until the first parameter is
    /// set.
    params: Vec<u8>,
    params_bytes: usize,
}

impl StagedLaunch {
    /// Copies a value to its place in the parameter block.
    pub fn set_param(&mut self, function: &Function, offset: u32, value: &[u8]) -> Answer {
        self.params.resize(function.params_bytes_max(), 0);
        let start = offset as usize;
        let place = start.checked_add(value.len()).and_then(|end| self.params.get_mut(start..end));
        place.ok_or(Status::InvalidValue)?.copy_from_slice(value);
        Ok(())
    }

    pub fn set_params_bytes(&mut self, function: &Function, bytes: u32) -> Answer {
        self.params.resize(function.params_bytes_max(), 0);
        self.params_bytes =
            Some(bytes as usize).filter(|bytes| *bytes <= self.params.len()).ok_or(Status::InvalidValue)?;
        Ok(())
    }
}

/// Launches a function with its settings on a two-dimensional grid.
pub fn launch_staged(handle: Handle, function: &Function, grid: [u32; 2], stream: Handle) -> Answer {
    let StagedLaunch { block, dynamic_shared, params, params_bytes } = function.staged().clone();
    let arguments = match params_bytes {
        0 => Arguments::None,
        bytes => Arguments::Packed { pointer: params.as_ptr(), bytes },
    };
    let [x, y] = grid;
    let request = Request { function: handle, grid: [x, y, 1], block, dynamic_shared, stream, cooperative: false };
    // SAFETY: the buffer has no fewer bytes, and lives until the launch has copied them.
    unsafe { launch(&request, arguments) }
}
