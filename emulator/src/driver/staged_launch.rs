//! Staged launches, as in programs before CUDA 4: a launch is put together call by call (`cuFuncSetBlockShape`,
//! `cuParamSetv`, `cuLaunchGrid`), and the function keeps its block shape, shared memory and parameters until the last
//! call.

use super::status::{Answer, Status};

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
    /// Copies a value to its place in the parameter block, which has at most `bytes_max` bytes.
    pub fn set_param(&mut self, bytes_max: usize, offset: u32, value: &[u8]) -> Answer {
        self.params.resize(bytes_max, 0);
        let start = offset as usize;
        let place = start.checked_add(value.len()).and_then(|end| self.params.get_mut(start..end));
        place.ok_or(Status::InvalidValue)?.copy_from_slice(value);
        Ok(())
    }

    /// Sets the bytes of the parameter block that the launch passes, of at most `bytes_max`.
    pub fn set_params_bytes(&mut self, bytes_max: usize, bytes: u32) -> Answer {
        self.params.resize(bytes_max, 0);
        self.params_bytes =
            Some(bytes as usize).filter(|bytes| *bytes <= self.params.len()).ok_or(Status::InvalidValue)?;
        Ok(())
    }

    /// Returns the parameters that the launch passes.
    pub fn params(&self) -> &[u8] {
        &self.params[..self.params_bytes]
    }
}
