//! Errors of compiling, and whose fault each is.

use std::time::Duration;

use gpufleet_schema::{Failure, FailureCode, Verdict};

use super::{
    child::{ADDRESS_SPACE_BYTES_MAX, TIME_LIMIT},
    library::NVRTC_VARIABLE,
};

/// Why there is no program.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CompileError {
    /// The code is at fault.
    #[error("failed to compile: {message}")]
    Source { message: String, log: String, line: Option<u32> },
    /// The request has an option or an include that is not allowed.
    #[error("failed to compile: {0}")]
    Refused(String),
    #[error("failed to compile: the time limit of {} s has passed", limit.as_secs())]
    Timeout { limit: Duration },
    /// The compiler crashed on this code, or exceeded its limits.
    #[error("failed to compile: the compiler died: {0}")]
    Died(String),
    #[error("failed to compile: NVRTC was not found: {0}")]
    NotFound(String),
    /// The Linux kernel does not support a layer of the sandbox, and the worker runs with `--sandbox strict`.
    #[error("failed to compile: the Linux kernel of the worker lacks {0}")]
    Open(String),
    #[error("failed to compile: {0}")]
    Internal(String),
}

impl CompileError {
    /// Returns whether the same request may succeed later.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Source { .. } | Self::Refused(_) | Self::Open(_) => false,
            Self::Timeout { .. } | Self::Died(_) | Self::NotFound(_) | Self::Internal(_) => true,
        }
    }
}

/// Converts the error to the failure that the submitter receives.
impl From<CompileError> for Failure {
    fn from(error: CompileError) -> Self {
        let (verdict, detail, line) = match &error {
            CompileError::Source { log, line, .. } => (Verdict::User, Some(log.clone()), *line),
            CompileError::Refused(_) | CompileError::Timeout { .. } | CompileError::Died(_) => {
                (Verdict::User, None, None)
            }
            CompileError::NotFound(_) | CompileError::Open(_) | CompileError::Internal(_) => {
                (Verdict::Infrastructure, None, None)
            }
        };
        let message = match error {
            CompileError::Source { message, .. } => message,
            CompileError::NotFound(why) => format!(
                "the worker found no NVRTC ({why}); install it on the worker with `gpufleet local setup`, set {NVRTC_VARIABLE} to \
                 its path, or submit PTX"
            ),
            CompileError::Open(missing) => format!(
                "this worker does not compile CUDA C: it runs with --sandbox strict, and its Linux kernel lacks {missing}; submit PTX"
            ),
            CompileError::Died(why) => format!(
                "failed to compile: the compiler died; it may use at most {} GiB of memory and {} s: {why}",
                ADDRESS_SPACE_BYTES_MAX >> 30,
                TIME_LIMIT.as_secs()
            ),
            other => format!("{other}"),
        };
        let failure = Self::new(verdict, FailureCode::CompileError, message).at_line(line);
        match detail {
            Some(detail) => failure.with_detail(detail),
            None => failure,
        }
    }
}
