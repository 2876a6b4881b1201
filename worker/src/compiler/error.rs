//! Why a program is not compiled, and whose fault that is.

use std::time::Duration;

use gpufleet_schema::{Failure, FailureCode, Verdict};

use super::{
    child::{ADDRESS_SPACE_BYTES_MAX, TIME_LIMIT},
    library::NVRTC_VARIABLE,
};

/// Why there is no PTX.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CompileError {
    /// The code is at fault.
    #[error("compile: {message}")]
    Source { message: String, log: String, line: Option<u32> },
    /// An option or an include that is not allowed.
    #[error("compile: {0}")]
    Refused(String),
    #[error("compile: it took longer than {} s", limit.as_secs())]
    Timeout { limit: Duration },
    /// The compiler crashed over this code, or ran into its limits.
    #[error("compile: the compiler died: {0}")]
    Died(String),
    #[error("compile: NVRTC is not there: {0}")]
    NotFound(String),
    /// The kernel can't close the compiler's sandbox, and the worker insists on it.
    #[error("compile: the kernel has no {0}")]
    Open(String),
    #[error("compile: {0}")]
    Internal(String),
}

impl CompileError {
    /// Whether the same request may end otherwise another time.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Source { .. } | Self::Refused(_) | Self::Open(_) => false,
            Self::Timeout { .. } | Self::Died(_) | Self::NotFound(_) | Self::Internal(_) => true,
        }
    }
}

/// What a submitter is told.
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
                "NVRTC was not found on the worker ({why}); install it there (the PyPI package nvidia-cuda-nvrtc-cu12 will do) and point \
                 {NVRTC_VARIABLE} at it, or submit PTX"
            ),
            CompileError::Open(missing) => format!(
                "this worker compiles no CUDA C: it was told --sandbox strict, and its kernel has no {missing}; submit PTX"
            ),
            CompileError::Died(why) => format!(
                "could not compile: the compiler died, as it does when it needs more than {} GiB or {} s: {why}",
                ADDRESS_SPACE_BYTES_MAX >> 30,
                TIME_LIMIT.as_secs()
            ),
            other => format!("could not {other}"),
        };
        let failure = Self::new(verdict, FailureCode::CompileError, message).at_line(line);
        match detail {
            Some(detail) => failure.with_detail(detail),
            None => failure,
        }
    }
}
