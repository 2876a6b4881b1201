//! Renders a job's failure: the reason, the line of the source, the verdict, and advice.

use gpufleet::{
    FailedJob,
    schema::{AttemptState, Excerpt, Failure, FailureCode, Verdict},
};

use super::plan::SourceText;
use crate::{complaint::Complaint, exit::Exit, snippet};

pub fn complaint(failed: &FailedJob, source: Option<&SourceText>) -> Complaint {
    let exit = Exit::of_outcome(failed.state, failed.failure.as_ref());
    let job_id = failed.job_id;
    let Some(failure) = &failed.failure else {
        return Complaint::new(exit, format!("job {job_id} {}", failed.ended()))
            .hint(format!("`gpufleet show {job_id}` shows what the ledger has recorded"));
    };
    let what = what(failed.ended(), &failure.message);
    let message = format!("job {job_id} {what} ({}, verdict {})", failure.code.name(), failure.verdict.name());
    let complaint = Complaint::new(exit, message).hint(hint(failure, failed));
    match detail(failure, source) {
        detail if detail.is_empty() => complaint,
        detail => complaint.detail(detail),
    }
}

/// How the job ended and why, as in "failed: misaligned address" or "was cancelled by anna".
fn what(ended: &str, reason: &str) -> String {
    let joined = format!("was {reason}");
    if joined.starts_with(ended) { joined } else { format!("{ended}: {reason}") }
}

fn detail(failure: &Failure, source: Option<&SourceText>) -> String {
    let log = failure.detail.as_deref().unwrap_or_default();
    let snippet = failure.line.zip(source).and_then(|(line, source)| snippet(source, line, log));
    let log = failure.detail.clone().filter(|log| snippet.is_none() || !is_said(failure, log));
    snippet.into_iter().chain(log).collect::<Vec<_>>().join("\n\n")
}

/// Whether the message and the lines of the source say all that the compiler's log says: it has one diagnostic.
fn is_said(failure: &Failure, log: &str) -> bool {
    const MARKS: [&str; 4] = ["): error", "): warning", "): remark", "): catastrophic error"];
    let diagnostics = log.lines().filter(|line| MARKS.iter().any(|mark| line.contains(mark)));
    failure.code == FailureCode::CompileError && diagnostics.count() == 1
}

/// The failing line of the submitted file with its neighbours.
fn snippet(source: &SourceText, line: u32, log: &str) -> Option<String> {
    let excerpt = Excerpt::around(&source.text, line)?;
    Some(snippet::render(&excerpt, line, &format!("{}:{line}", source.path.display()), log))
}

fn hint(failure: &Failure, failed: &FailedJob) -> String {
    let again = || {
        let id = failed.job_id;
        format!(
            "submit the job again; if it fails again, `gpufleet show {id}` names the worker, whose log has the cause"
        )
    };
    match failure.code {
        FailureCode::BlobMissing => format!(
            "check that the workers and this command use the same --blobs folder; then submit the job again, which stores its arrays \
             again, or store them with `gpufleet blobs put` and replay the job: gpufleet retry {}",
            failed.job_id
        ),
        // Only a dead-lettered job can be replayed.
        FailureCode::BlobUnavailable if failed.state == AttemptState::Dead => format!(
            "check that the workers and this command use the same --blobs folder, and that it can be read; then replay the job: \
             gpufleet retry {}",
            failed.job_id
        ),
        FailureCode::BlobUnavailable => {
            "start the pool's workers with --blobs STORE, the store that this command uses; then submit the job again".to_owned()
        }
        FailureCode::AttemptsExhausted => format!(
            "`gpufleet show {id}` names the workers, whose logs have the cause; repair it, then replay the job: gpufleet retry {id}",
            id = failed.job_id
        ),
        // The verdict shows that the job is not at fault.
        _ if matches!(failure.verdict, Verdict::Device | Verdict::Infrastructure) => again(),
        FailureCode::CompileError => "correct the source and submit the job again".to_owned(),
        FailureCode::LoadError => {
            "the device can't load this program; check its target architecture and its entry names".to_owned()
        }
        FailureCode::MalformedTask | FailureCode::UnsupportedVersion => {
            "the worker may have another version than this command; install the same version of both".to_owned()
        }
        FailureCode::InvalidTask => "correct what the message names and submit the job again".to_owned(),
        FailureCode::UnknownKernel => {
            "the worker's catalog lacks this kernel; install the same version of the worker and this command".to_owned()
        }
        FailureCode::RequirementsNotMet => "require less, or choose a pool with such devices; `gpufleet workers` lists pools and devices".to_owned(),
        FailureCode::Policy => "change the job, or choose a pool that allows it; its workers' options --pool and --trusted-key set what a pool allows".to_owned(),
        FailureCode::LaunchError => "check the entry, arguments, grid, block and shared memory against the program and the device; an entry that is not extern \"C\" is written ::NAME".to_owned(),
        FailureCode::KernelFault => {
            "check the kernel's indices and the grid against the shapes of the buffers".to_owned()
        }
        FailureCode::Quarantined => "correct the fault that ended this program's last jobs (`gpufleet history --state failed` lists them); a changed program is not quarantined".to_owned(),
        FailureCode::TimeLimit => "raise --time-limit, or give the job less work".to_owned(),
        FailureCode::QueueLimit => "raise --queue-limit, or start more workers".to_owned(),
        FailureCode::OutOfMemory => "use smaller buffers, or a pool with larger devices".to_owned(),
        FailureCode::OutputTooLarge => {
            "a reply carries at most 16 MiB: return large buffers through a blob store (--blobs STORE, for this command and the workers), \
             return fewer or smaller buffers, or split the job"
                .to_owned()
        }
        FailureCode::ProgramFailed => "read the program's own output".to_owned(),
        FailureCode::ClientLost => {
            "run the command again; if it never connected, open the worker's ports for sessions (--session-listen) to this machine"
                .to_owned()
        }
        FailureCode::IdleLimit => "raise --idle-limit, or end the program when it no longer needs the device".to_owned(),
        FailureCode::Cancelled => "submit the job again if you still need its result".to_owned(),
        FailureCode::ExecutorLost | FailureCode::DeviceLost | FailureCode::Internal => again(),
        FailureCode::Later(_) => {
            "the worker is of a later release than this command; correct what the message names, or upgrade this command".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gpufleet::schema::Timings;

    use super::*;

    fn failed(failure: Option<Failure>) -> FailedJob {
        FailedJob {
            job_id: "01990f3e-0000-7000-8000-000000000001".parse().unwrap(),
            state: AttemptState::Failed,
            attempt: 1,
            failure,
            timings: Timings::default(),
            ran_on: None,
            printf_output: None,
            session: None,
            round_trip: Duration::ZERO,
            outputs: Vec::new(),
        }
    }

    #[test]
    fn a_compile_error_points_into_the_source() {
        let text = "#include <x>\nextern \"C\" __global__ void k(float *y)\n{\n\ty[0] = zz;\n}\n";
        let source = SourceText { path: "edge.cu".into(), text: text.to_owned() };
        let failure = Failure::new(Verdict::User, FailureCode::CompileError, "identifier \"zz\" is undefined")
            .with_detail("kernel.cu(4): error: identifier \"zz\" is undefined\n      y[0] = zz;\n             ^\n\n1 error detected")
            .at_line(Some(4));
        let complaint = complaint(&failed(Some(failure)), Some(&source));
        assert_eq!(complaint.exit, Exit::JobFailed);
        insta::assert_snapshot!(complaint.render(false));
    }

    #[test]
    fn a_log_with_a_second_diagnostic_is_shown() {
        let source = SourceText { path: "edge.cu".into(), text: "a\nb\n".to_owned() };
        let one = "kernel.cu(1): error: no\n  a\n  ^\n";
        let two = format!("{one}kernel.cu(2): error: neither\n  b\n  ^\n");
        for (log, is_shown) in [(one, false), (&two, true)] {
            let failure = Failure::new(Verdict::User, FailureCode::CompileError, "kernel.cu(1): error: no");
            let shown = detail(&failure.with_detail(log).at_line(Some(1)), Some(&source));
            assert!(shown.contains("1 | a") && shown.contains("kernel.cu") == is_shown, "{shown}");
        }
    }

    #[test]
    fn a_line_that_the_source_does_not_have_is_left_out() {
        let source = SourceText { path: "edge.cu".into(), text: "one line".to_owned() };
        assert_eq!(snippet(&source, 0, ""), None);
        assert_eq!(snippet(&source, 2, ""), None);
        assert_eq!(snippet(&source, u32::MAX, ""), None);
        assert!(snippet(&source, 1, "").unwrap().contains("1 | one line\n  | ^^^^^^^^"));
    }

    #[test]
    fn the_hints_about_arrays_name_the_blob_store() {
        for (verdict, code) in [
            (Verdict::User, FailureCode::OutputTooLarge),
            (Verdict::User, FailureCode::BlobUnavailable),
            (Verdict::Infrastructure, FailureCode::BlobUnavailable),
        ] {
            let complaint = complaint(&failed(Some(Failure::new(verdict, code, "m"))), None);
            assert!(complaint.hint.unwrap().contains("--blobs"), "{code:?}");
        }
    }

    #[test]
    fn only_the_hint_for_a_dead_lettered_job_suggests_a_replay() {
        let hint = |state, code| {
            let failure = Some(Failure::new(Verdict::Infrastructure, code, "m"));
            complaint(&FailedJob { state, ..failed(failure) }, None).hint.unwrap()
        };
        assert!(hint(AttemptState::Dead, FailureCode::BlobUnavailable).contains("gpufleet retry"));
        assert!(!hint(AttemptState::Failed, FailureCode::BlobUnavailable).contains("gpufleet retry"));
        assert!(hint(AttemptState::Dead, FailureCode::AttemptsExhausted).contains("gpufleet retry"));
    }

    #[test]
    fn a_reason_that_repeats_the_state_is_not_repeated() {
        assert_eq!(what("was cancelled", "cancelled by anna"), "was cancelled by anna");
        assert_eq!(what("failed", "misaligned address"), "failed: misaligned address");
    }

    #[test]
    fn a_failure_without_a_reason_is_reported() {
        let complaint = complaint(&failed(None), None);
        assert_eq!(complaint.exit, Exit::FleetFailed);
        assert!(complaint.hint.unwrap().contains("gpufleet show"));
    }
}
