//! Exit codes of the worker, which scripts can rely on.

use std::process::ExitCode;

use gpufleet_blobs::BlobError;

use crate::supervisor::WorkerError;

/// The table of exit codes that `--help` shows.
pub const TABLE: &str = "\
Exit codes:
   0  success; `run`: drained after SIGTERM, Ctrl-C or `gpufleet workers drain`
   1  internal error
   2  invalid option or configuration
   7  the broker refused the worker (credentials, vhost, TLS, topology)
  10  no usable CUDA driver or device
  11  the last device went out of service
  12  selftest: a check failed";

/// Exit code: there is no usable CUDA driver or device.
pub const NO_DEVICE: u8 = 10;
/// Exit code: a check of the self-test failed.
pub const UNFIT: u8 = 12;

pub fn code(error: &WorkerError) -> ExitCode {
    ExitCode::from(match error {
        WorkerError::Cache(_)
        | WorkerError::BlobCache(_)
        | WorkerError::Metrics { .. }
        | WorkerError::Traces(_)
        | WorkerError::NameTaken(_)
        | WorkerError::Programs(_)
        | WorkerError::ProgramFolder { .. }
        | WorkerError::Blobs(BlobError::Unusable { .. }) => 2,
        // A restart can succeed, because an unreachable store may recover.
        WorkerError::ReadyFile { .. } | WorkerError::Signals(_) | WorkerError::Blobs(_) => 1,
        WorkerError::Connect(_) | WorkerError::Declare(_) | WorkerError::Orders(_) => 7,
        WorkerError::Inventory(_) | WorkerError::Choice(_) => NO_DEVICE,
        WorkerError::DevicesLost(_) => 11,
    })
}
