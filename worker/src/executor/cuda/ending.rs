//! How a job ends on a stream.

use gpufleet_schema::{Failure, FailureCode, Timings, Verdict};

use super::{
    error::{CudaError, Damage},
    module::LoadError,
};

/// The end of a job in a usable context.
pub(crate) enum StreamEnd {
    Finished(Result<(), Failure>, Timings),
    /// The supervisor released the job while it waited for its arrays to move.
    Released,
}

/// Why a job failed. The context may be unusable as well.
pub(crate) enum StreamError {
    Failed(Failure),
    Released,
    Cuda(CudaError),
}

impl StreamError {
    /// Returns whether the context is unusable.
    pub(super) fn is_fatal(&self) -> bool {
        matches!(self, Self::Cuda(error) if error.damage() != Damage::None)
    }

    pub(super) fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Failed(failure) if failure.code == FailureCode::OutOfMemory)
    }
}

impl From<CudaError> for StreamError {
    fn from(error: CudaError) -> Self {
        Self::Cuda(error)
    }
}

impl From<LoadError> for StreamError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Failed(failure) => Self::Failed(failure),
            LoadError::Cuda(error) => Self::Cuda(error),
        }
    }
}

pub(super) fn failed<T>(verdict: Verdict, code: FailureCode, message: String) -> Result<T, StreamError> {
    Err(StreamError::Failed(Failure::new(verdict, code, message)))
}

/// Fails because a message of the supervisor is wrong, which is not the user's mistake.
pub(super) fn internal<T>(message: String) -> Result<T, StreamError> {
    failed(Verdict::Infrastructure, FailureCode::Internal, message)
}
