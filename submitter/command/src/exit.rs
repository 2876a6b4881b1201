//! The exit codes of the command. Scripts rely on these numbers: they are documented in `--help` and never reused.

use std::process::ExitCode;

use gpufleet::schema::{AttemptState, Failure, Verdict};

/// The exit code of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The command succeeded.
    Success = 0,
    /// A defect in gpufleet.
    Internal = 1,
    /// The command line is invalid (clap's number).
    Usage = 2,
    /// An input is invalid: a file, a shape, an argument or the name of a kernel.
    BadInput = 3,
    /// The job failed because of its program or data: it did not compile, it was invalid, or its kernel faulted.
    JobFailed = 4,
    /// The job reached a limit of time, queue or device memory, or it was cancelled.
    JobStopped = 5,
    /// The time of `--timeout` passed. A submitted job keeps running, and a cancellation stays in force.
    DeadlinePassed = 6,
    /// The broker can't be reached, or refused the client.
    Broker = 7,
    /// The ledger can't be reached, or refused the client.
    Ledger = 8,
    /// There is no such job, attempt, output or worker, or the prefix of an id is ambiguous.
    NotFound = 9,
    /// The job failed because of the fleet: it lost its device or executor too often.
    FleetFailed = 10,
    /// The ledger's tables do not fit this release, or the user lacks privileges on them. The recorder has the same code.
    LedgerTables = 11,
    /// `gpufleet doctor` found an error.
    Unhealthy = 12,
    /// `gpufleet run`: the command failed after it needed something that sessions lack.
    SessionLacks = 13,
    /// `gpufleet run`: the command can't be executed, as shells have it.
    CommandNotExecutable = 126,
    /// `gpufleet run`: the command does not exist, as shells have it.
    CommandNotFound = 127,
    /// Ctrl-C. A submitted job keeps running.
    Interrupted = 130,
}

/// The table as `--help` shows it.
pub const TABLE: &str = "\
Exit codes:
    0  success
    1  internal error of gpufleet
    2  wrong usage: an unknown or invalid option or argument
    3  bad input: an unreadable file, a wrong shape, an unknown kernel, a missing program, a pool
       without sessions or host programs
    4  the job failed because of its program or data: compile error, invalid task, kernel fault
    5  the job reached a limit (time, queue, device memory) or was cancelled
    6  --timeout passed; a submitted job keeps running, and a cancellation stays in force
    7  the broker can't be reached, or refused the request
    8  the ledger can't be reached, or refused the request
    9  not found: no such job, attempt, output or worker, or the id is ambiguous
   10  the fleet failed the job: a device, an executor or the blob store was lost
   11  the ledger's tables do not fit this release, or the user lacks privileges on them
   12  gpufleet doctor found an error
   13  gpufleet run: the command failed after it needed something that sessions lack
  126  gpufleet run: the command can't be executed
  127  gpufleet run: the command was not found
  130  interrupted with Ctrl-C; a submitted job keeps running";

impl Exit {
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The exit code for a job that did not succeed.
    pub fn of_outcome(state: AttemptState, failure: Option<&Failure>) -> Self {
        match (state, failure.map(|failure| failure.verdict)) {
            (AttemptState::Succeeded, _) => Self::Success,
            (AttemptState::Cancelled | AttemptState::Expired, _) => Self::JobStopped,
            (_, Some(Verdict::User)) => Self::JobFailed,
            (_, Some(Verdict::Timeout | Verdict::OutOfMemory)) => Self::JobStopped,
            (_, Some(Verdict::Device | Verdict::Infrastructure | Verdict::Later(_)) | None) => Self::FleetFailed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use gpufleet::schema::FailureCode;

    use super::*;

    #[test]
    fn the_exit_code_of_a_failed_job_follows_its_verdict() {
        let failure = |verdict| Some(Failure::new(verdict, FailureCode::Internal, "m"));
        let exit = |state, verdict| Exit::of_outcome(state, failure(verdict).as_ref());
        assert_eq!(exit(AttemptState::Failed, Verdict::User), Exit::JobFailed);
        assert_eq!(exit(AttemptState::Failed, Verdict::Timeout), Exit::JobStopped);
        assert_eq!(exit(AttemptState::Failed, Verdict::OutOfMemory), Exit::JobStopped);
        assert_eq!(exit(AttemptState::Expired, Verdict::Timeout), Exit::JobStopped);
        assert_eq!(exit(AttemptState::Dead, Verdict::User), Exit::JobFailed);
        assert_eq!(exit(AttemptState::Dead, Verdict::Infrastructure), Exit::FleetFailed);
        assert_eq!(Exit::of_outcome(AttemptState::Dead, None), Exit::FleetFailed);
    }

    #[test]
    fn the_table_lists_every_code() {
        for exit in [
            Exit::Success,
            Exit::Internal,
            Exit::Usage,
            Exit::BadInput,
            Exit::JobFailed,
            Exit::JobStopped,
            Exit::DeadlinePassed,
            Exit::Broker,
            Exit::Ledger,
            Exit::NotFound,
            Exit::FleetFailed,
            Exit::LedgerTables,
            Exit::Unhealthy,
            Exit::SessionLacks,
            Exit::CommandNotExecutable,
            Exit::CommandNotFound,
            Exit::Interrupted,
        ] {
            assert!(TABLE.contains(&format!("\n{:>5}  ", exit.code())), "{exit:?}");
        }
    }
}
