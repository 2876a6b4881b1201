//! Errors of the driver, and their effect on the job and the process.

use std::fmt;

use cudarc::driver::{DriverError, sys::CUresult};
use gpufleet_schema::{Failure, FailureCode, Verdict};

/// A failed driver call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CudaError {
    pub call: &'static str,
    pub result: CUresult,
    pub name: String,
    pub text: String,
}

/// The damage that an error leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damage {
    /// None: only the call failed.
    None,
    /// The context is unusable until the process ends, because of a kernel.
    Context,
    /// The context is unusable until the process ends, because of the device.
    Device,
}

/// Converts a driver error, adding the name of the call.
pub(crate) fn called<T>(call: &'static str, result: Result<T, DriverError>) -> Result<T, CudaError> {
    result.map_err(|error| CudaError::new(call, error))
}

impl CudaError {
    fn new(call: &'static str, error: DriverError) -> Self {
        let text = |text: Result<&std::ffi::CStr, DriverError>| {
            text.map_or_else(|_| "unknown".to_owned(), |text| text.to_string_lossy().into_owned())
        };
        Self { call, result: error.0, name: text(error.error_name()), text: text(error.error_string()) }
    }

    /// Returns the error of an illegal access, for a write that the device itself did not notice.
    pub(super) fn shared_input_written() -> Self {
        Self {
            call: "check of shared inputs",
            result: CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
            name: "CUDA_ERROR_ILLEGAL_ADDRESS".to_owned(),
            text: "a kernel wrote to an input that its job shares with other jobs; submit the job without `share` for the buffers that \
                   its kernels write to"
                .to_owned(),
        }
    }

    pub(crate) fn code(&self) -> u32 {
        self.result as u32
    }

    /// Returns whether the device lacks memory. The second code comes from loading a module, by default at a kernel's
    /// first use: there was no room for its code or for the device's heap.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self.result, CUresult::CUDA_ERROR_OUT_OF_MEMORY | CUresult::CUDA_ERROR_SHARED_OBJECT_INIT_FAILED)
    }

    /// Returns the damage, that is, whether the code leaves the process unable to continue according to the driver's
    /// documentation.
    pub(crate) fn damage(&self) -> Damage {
        match self.result {
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK => Damage::Context,
            CUresult::CUDA_ERROR_DEINITIALIZED
            | CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_CONTAINED
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUresult::CUDA_ERROR_MPS_CONNECTION_FAILED
            | CUresult::CUDA_ERROR_MPS_RPC_FAILURE
            | CUresult::CUDA_ERROR_MPS_SERVER_NOT_READY
            | CUresult::CUDA_ERROR_MPS_MAX_CLIENTS_REACHED
            | CUresult::CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED
            | CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED => Damage::Device,
            // A failed driver or device reports this code (Xid 79, for example).
            CUresult::CUDA_ERROR_UNKNOWN => Damage::Device,
            _ => Damage::None,
        }
    }

    /// Converts an error without damage into the job's failure.
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
        write!(f, "{} failed with {} ({}): {}", self.call, self.name, self.code(), self.text)
    }
}
