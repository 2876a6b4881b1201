//! The exit codes. Scripts rely on these numbers.

use std::process::ExitCode;

use gpufleet_ledger::{LedgerError, disposition::Disposition, recorder::RecorderError};

/// The table of exit codes, which `--help` shows.
pub(crate) const TABLE: &str = "\
Exit codes:
   0  success, or stopped by a signal
   1  internal error
   2  wrong usage: an invalid option or URL
   7  the broker can't be reached, or refused the recorder
   8  the database can't be reached, or refused the user
  11  the ledger's tables do not fit this release, or the user lacks privileges on them";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success = 0,
    Internal = 1,
    /// Also clap's.
    Usage = 2,
    Broker = 7,
    Database = 8,
    /// `gpufleet` ends with the same code.
    Schema = 11,
}

/// An error and the exit code of the process.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) error: anyhow::Error,
}

impl Failure {
    pub(crate) fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into() }
    }

    /// Names the operation that failed, which completes "failed to …".
    pub(crate) fn doing(self, what: &'static str) -> Self {
        Self { error: self.error.context(format!("failed to {what}")), ..self }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<LedgerError> for Failure {
    fn from(error: LedgerError) -> Self {
        let exit = match error.disposition() {
            Disposition::Retry => Exit::Database,
            Disposition::Schema => Exit::Schema,
            Disposition::BadData | Disposition::Defect => Exit::Internal,
        };
        Self::new(exit, error)
    }
}

impl From<RecorderError> for Failure {
    fn from(error: RecorderError) -> Self {
        match error {
            RecorderError::Ledger(error) => error.into(),
            RecorderError::BrokerClosed => Self::new(Exit::Broker, error),
        }
    }
}
