//! Errors of the driver, and what they mean for the job and for the process.

use std::fmt;

use cudarc::driver::DriverError;
use gpufleet_schema::{Failure, FailureCode, Verdict};

/// A call that the driver did not like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CudaError {
    pub call: &'static str,
    pub code: u32,
    pub name: String,
    pub text: String,
}

/// What is left after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damage {
    /// The call failed and nothing else.
    None,
    /// Every later call on the context fails until the process ends; a kernel is to blame.
    Context,
    /// The same, and the device is to blame.
    Device,
}

/// Gives an error the name of its call.
pub(crate) fn called<T>(call: &'static str, result: Result<T, DriverError>) -> Result<T, CudaError> {
    result.map_err(|error| CudaError::new(call, error))
}

impl CudaError {
    fn new(call: &'static str, error: DriverError) -> Self {
        let text = |text: Result<&std::ffi::CStr, DriverError>| {
            text.map_or_else(|_| "unknown".to_owned(), |text| text.to_string_lossy().into_owned())
        };
        Self { call, code: error.0 as u32, name: text(error.error_name()), text: text(error.error_string()) }
    }

    /// The second code is how a module's load says it, which by default comes with the kernel's first use: there was no room for its code or
    /// the device's heap.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self.code, 2 | 303)
    }

    /// By the driver's documentation of each code: which ones leave the process unable to go on.
    pub(crate) fn damage(&self) -> Damage {
        match self.code {
            // Illegal address, launch timeout, assert, stack, instruction, misaligned address, address space, pc, launch failed, tensor
            // memory leak.
            700 | 702 | 710 | 714..=719 | 721 => Damage::Context,
            // Device unavailable, uncorrectable ECC, NVLink, contained error, context destroyed, driver shut down, MPS client gone.
            4 | 46 | 214 | 220 | 226 | 709 | 805..=810 => Damage::Device,
            // Unknown errors come from a driver or device that has lost its way (Xid 79 among them).
            999 => Damage::Device,
            _ => Damage::None,
        }
    }

    /// What a job is told of an error that left no damage and that nobody has a better word for.
    pub(crate) fn into_failure(self) -> Failure {
        let (verdict, code) = if self.is_out_of_memory() {
            (Verdict::OutOfMemory, FailureCode::OutOfMemory)
        } else {
            (Verdict::Infrastructure, FailureCode::Internal)
        };
        Failure::new(verdict, code, self.to_string())
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered {} ({}): {}", self.call, self.name, self.code, self.text)
    }
}
