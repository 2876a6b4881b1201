//! A launch that is put together call by call, as programs before CUDA 4 did: until the last call the function holds its
//! block, its shared memory and its parameters.

use super::{
    function::Function,
    handle::Handle,
    launch::{Arguments, Request},
    status::{Answer, Status},
    submission::launch,
};

/// What the calls before the launch have said. Each launch uses what was said last.
#[derive(Debug, Default, Clone)]
pub struct StagedLaunch {
    /// Null until it is given, which no launch allows.
    pub block: [u32; 3],
    pub dynamic_shared: u32,
    /// The bytes that the kernel takes; a caller may have set fewer, or more than it says.
    params: Vec<u8>,
    params_bytes: usize,
}

impl StagedLaunch {
    /// Puts a value where the kernel reads it.
    pub fn set_param(&mut self, function: &Function, offset: u32, value: &[u8]) -> Answer {
        let room = function.params_bytes_max();
        self.params.resize(room, 0);
        let start = offset as usize;
        let place = start.checked_add(value.len()).and_then(|end| self.params.get_mut(start..end));
        place.ok_or(Status::InvalidValue)?.copy_from_slice(value);
        Ok(())
    }

    pub fn set_params_bytes(&mut self, function: &Function, bytes: u32) -> Answer {
        let bytes = bytes as usize;
        if bytes > function.params_bytes_max() {
            return Err(Status::InvalidValue);
        }
        self.params_bytes = bytes;
        Ok(())
    }
}

/// Launches a function with what it holds, on a grid of two dimensions.
pub fn launch_staged(handle: Handle, function: &Function, grid: [u32; 2], stream: Handle) -> Answer {
    let StagedLaunch { block, dynamic_shared, mut params, params_bytes } = function.staged().clone();
    // Parameters that the size covers and no call has set are zero.
    params.resize(params_bytes.max(params.len()), 0);
    let arguments = if params_bytes == 0 {
        Arguments::None
    } else {
        Arguments::Packed { pointer: params.as_ptr(), bytes: params_bytes }
    };
    let [x, y] = grid;
    let request = Request { function: handle, grid: [x, y, 1], block, dynamic_shared, stream, cooperative: false };
    // SAFETY: the buffer has so many bytes, and lives until the parameters are gathered.
    unsafe { launch(&request, arguments) }
}
