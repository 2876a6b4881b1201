//! Decides how `gpufleet run --on-worker` ends: with the program's exit code, or with a complaint.

use gpufleet::{
    FailedJob, JobError,
    schema::{AttemptState, FailureCode, SessionUse},
};

use super::super::program::ProgramEnd;
use crate::{complaint::Complaint, exit::Exit, submit};

/// How the program ended, as its exit code or signal says; none if it did not end by itself.
pub fn of_failed(failed: &FailedJob) -> Option<ProgramEnd> {
    failed.failure.as_ref().filter(|failure| failure.code == FailureCode::ProgramFailed)?;
    let end = match failed.session.as_deref()? {
        SessionUse { exit_code: Some(code), .. } => ProgramEnd::Code(*code),
        SessionUse { signal: Some(signal), .. } => ProgramEnd::Signal(*signal),
        SessionUse { .. } => return None,
    };
    // A failure is never a success, whatever the numbers say.
    (end.code() != 0).then_some(end)
}

/// The complaint about a program that did not end by itself.
pub fn complaint(failed: &FailedJob) -> Complaint {
    let complaint = submit::failed(failed, None);
    let Some(failure) = &failed.failure else { return complaint };
    match failure.code {
        // A host program is not replayed, because it may have had effects.
        FailureCode::AttemptsExhausted | FailureCode::ExecutorLost | FailureCode::DeviceLost => complaint.hint(format!(
            "run the command again, or let it run again by itself with --attempts; `gpufleet show {}` names the workers, whose logs have \
             the cause",
            failed.job_id
        )),
        FailureCode::BlobUnavailable if failed.state == AttemptState::Dead => complaint.hint(
            "check that the workers and this command use the same blob store (--blobs), and that it can be read; then run the command again",
        ),
        FailureCode::RequirementsNotMet => complaint
            .hint("require less, name an environment that the workers have, or choose another pool; `gpufleet workers` lists pools and devices"),
        // A program that failed by itself has an exit code instead. This one did not start, or its files did not come back.
        FailureCode::InvalidTask | FailureCode::LaunchError | FailureCode::ProgramFailed => {
            complaint.hint("correct what the message names, and run the command again")
        }
        _ => complaint,
    }
}

/// The complaint about an outcome that did not arrive or can't be read.
pub fn unknown(error: &JobError) -> Complaint {
    let id = error.job_id();
    let exit = match error {
        JobError::Closed { .. } => Exit::Broker,
        JobError::DeadlinePassed { .. } => Exit::DeadlinePassed,
        _ => Exit::FleetFailed,
    };
    Complaint::new(exit, error.to_string()).hint(format!("`gpufleet show {id}` shows what became of the program"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gpufleet::schema::{Failure, JobId, Timings, Verdict};

    use super::*;

    fn failed(code: FailureCode, verdict: Verdict, used: Option<SessionUse>) -> FailedJob {
        FailedJob {
            job_id: JobId::new(),
            state: AttemptState::Failed,
            attempt: 1,
            failure: Some(Failure::new(verdict, code, "the reason")),
            timings: Timings::default(),
            ran_on: None,
            printf_output: None,
            session: used.map(Box::new),
            round_trip: Duration::ZERO,
            outputs: Vec::new(),
        }
    }

    fn used(exit_code: Option<i32>, signal: Option<i32>) -> Option<SessionUse> {
        Some(SessionUse { exit_code, signal, ..SessionUse::default() })
    }

    #[test]
    fn the_exit_code_is_that_of_the_program() {
        let end = |used| of_failed(&failed(FailureCode::ProgramFailed, Verdict::User, used)).map(ProgramEnd::code);
        assert_eq!(end(used(Some(3), None)), Some(3));
        assert_eq!(end(used(Some(255), None)), Some(255));
        assert_eq!(end(used(None, Some(9))), Some(137));
        assert_eq!(end(used(None, None)), None);
        assert_eq!(end(used(Some(0), None)), None, "a failure is no success");
        assert_eq!(end(None), None, "an old worker does not say");
    }

    #[test]
    fn a_program_that_the_fleet_ended_has_an_exit_code_of_the_table() {
        let exit = |code, verdict| {
            let failed = failed(code, verdict, used(None, Some(9)));
            assert_eq!(of_failed(&failed), None);
            complaint(&failed).exit
        };
        assert_eq!(exit(FailureCode::TimeLimit, Verdict::Timeout), Exit::JobStopped);
        assert_eq!(exit(FailureCode::AttemptsExhausted, Verdict::Infrastructure), Exit::FleetFailed);
        assert_eq!(exit(FailureCode::Policy, Verdict::User), Exit::JobFailed);
        let without_number = failed(FailureCode::ProgramFailed, Verdict::User, None);
        assert_eq!(complaint(&without_number).exit, Exit::JobFailed);
    }

    #[test]
    fn a_command_that_did_not_start_has_no_output_to_read() {
        let hint = complaint(&failed(FailureCode::ProgramFailed, Verdict::User, None)).hint.unwrap();
        assert_eq!(hint, "correct what the message names, and run the command again");
    }

    #[test]
    fn no_hint_suggests_a_replay() {
        for code in [FailureCode::AttemptsExhausted, FailureCode::BlobUnavailable, FailureCode::ExecutorLost] {
            let failed = FailedJob { state: AttemptState::Dead, ..failed(code, Verdict::Infrastructure, None) };
            assert!(!complaint(&failed).hint.unwrap().contains("gpufleet retry"), "{code:?}");
        }
    }
}
