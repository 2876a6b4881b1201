//! Prints a job's outcome.

use std::path::PathBuf;

use gpufleet::{
    FailedJob, JobResult, UnreadOutput,
    schema::{Excerpt, Failure, JobId, PrintfOutput, RanOn, Timings},
};
use serde::Serialize;

use super::elements;
use crate::{complaint::Complaint, history::device, options::ResultFormat, output, printed, quantity, show};

/// The output of `-o json`: always this object, with `null` for missing values.
#[derive(Debug, Serialize)]
struct Report<'a> {
    job_id: JobId,
    /// `null`: the command stopped waiting, or never waited.
    state: Option<&'a str>,
    attempt: Option<u32>,
    ran_on: Option<&'a RanOn>,
    timings: Option<&'a Timings>,
    round_trip_us: Option<u64>,
    outputs: Vec<Written>,
    failure: Option<Reason<'a>>,
    printf_output: Option<&'a PrintfOutput>,
}

/// A failure in the form of the history: missing values are `null`, and not left out as on the wire.
#[derive(Debug, Serialize)]
struct Reason<'a> {
    verdict: &'a str,
    code: &'a str,
    message: &'a str,
    detail: Option<&'a str>,
    line: Option<u32>,
    source: Option<&'a Excerpt>,
}

/// An output, and the file that it went to.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Written {
    name: String,
    dtype: &'static str,
    shape: Vec<u64>,
    pub file: Option<PathBuf>,
    #[serde(skip)]
    pub remark: Option<String>,
}

impl<'a> Report<'a> {
    fn of_result(result: &'a JobResult<UnreadOutput>, outputs: Vec<Written>) -> Self {
        Self {
            state: Some(result.state.name()),
            attempt: Some(result.attempt),
            ran_on: result.ran_on.as_ref(),
            timings: Some(&result.timings),
            round_trip_us: Some(micros(result.round_trip)),
            outputs,
            printf_output: result.printf_output.as_ref(),
            ..Self::of(result.job_id)
        }
    }

    fn of_failed(failed: &'a FailedJob) -> Self {
        Self {
            state: Some(failed.state.name()),
            attempt: Some(failed.attempt),
            ran_on: failed.ran_on.as_ref(),
            timings: Some(&failed.timings),
            round_trip_us: Some(micros(failed.round_trip)),
            failure: failed.failure.as_ref().map(Reason::of),
            printf_output: failed.printf_output.as_ref(),
            ..Self::of(failed.job_id)
        }
    }

    /// A report with nothing but the id.
    fn of(job_id: JobId) -> Self {
        Self {
            job_id,
            state: None,
            attempt: None,
            ran_on: None,
            timings: None,
            round_trip_us: None,
            outputs: Vec::new(),
            failure: None,
            printf_output: None,
        }
    }
}

impl Written {
    /// An output that is not in a file.
    pub fn of(name: &str, output: &UnreadOutput) -> Self {
        Self {
            name: name.to_owned(),
            dtype: output.dtype().name(),
            shape: output.shape().to_vec(),
            file: None,
            remark: None,
        }
    }
}

impl<'a> Reason<'a> {
    fn of(failure: &'a Failure) -> Self {
        Self {
            verdict: failure.verdict.name(),
            code: failure.code.name(),
            message: &failure.message,
            detail: failure.detail.as_deref(),
            line: failure.line,
            source: failure.source.as_ref(),
        }
    }
}

/// Prints the id of a detached job.
pub fn submitted(job_id: JobId, format: ResultFormat) -> Result<(), Complaint> {
    format.print(&Report::of(job_id), |_| format!("{job_id}\n"))
}

/// Reports a job whose outcome is not known. People read about it on stderr.
pub fn unfinished(job_id: JobId, format: ResultFormat) -> Result<(), Complaint> {
    format.print(&Report::of(job_id), |_| String::new())
}

/// Reports a job that succeeded, with the files of its outputs.
pub fn succeeded(
    result: &JobResult<UnreadOutput>,
    written: Vec<Written>,
    format: ResultFormat,
) -> Result<(), Complaint> {
    format.print(&Report::of_result(result, written), |report| describe(result, &report.outputs))
}

/// Reports a failed job: for programs as data, for people only the printf output, because stderr has the failure.
pub fn failed(failed: &FailedJob, format: ResultFormat) -> Result<(), Complaint> {
    format.print(&Report::of_failed(failed), |_| failed.printf_output.as_ref().map(printed::whole).unwrap_or_default())
}

fn describe(result: &JobResult<UnreadOutput>, written: &[Written]) -> String {
    let place = result.ran_on.as_ref().map_or_else(String::new, |ran_on| {
        format!(
            " on {}, device {}: {}",
            ran_on.worker,
            ran_on.device,
            device(Some(&ran_on.device_name), Some(ran_on.emulated))
        )
    });
    let again = if result.attempt > 1 { format!(" on attempt {}", result.attempt) } else { String::new() };
    let mut text = format!("job {} {}{again}{place}\n", result.job_id, result.state);
    text.push_str(&show::breakdown(&result.timings, Some(micros(result.round_trip)), output::stdout_width()));
    text.push_str(&format!("  {:<21} {:>8}\n", "round trip", quantity::micros(micros(result.round_trip))));
    for output in written {
        let form = format!("{}: {}{:?}", output.name, output.dtype, output.shape);
        let remark = output.remark.as_ref().map(|remark| format!(" ({remark})")).unwrap_or_default();
        text.push_str(&match &output.file {
            Some(file) => format!("{form} written to {}{remark}\n", file.display()),
            None => format!(
                "{form}{}\n",
                unsaved(&output.name, result.outputs.iter().find(|(name, _)| *name == output.name))
            ),
        });
    }
    text.extend(result.printf_output.as_ref().map(printed::whole));
    text
}

/// The elements of an output that goes to no file, and how to keep those that are not shown.
fn unsaved(name: &str, output: Option<&(String, UnreadOutput)>) -> String {
    let to_save = format!("to save it, add --out {name}=FILE");
    match output {
        Some((_, UnreadOutput::Array(array))) => match elements::whole(array) {
            Some(elements) => format!(" = {elements}"),
            None => format!(" = {}; {to_save}", elements::beginning(array)),
        },
        Some((_, UnreadOutput::Stored(_))) | None => format!(" was returned but not saved; {to_save}"),
    }
}

fn micros(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gpufleet::{
        Array,
        schema::{AttemptState, FailureCode, Verdict},
    };

    use super::*;
    use crate::json;

    fn result() -> JobResult<UnreadOutput> {
        JobResult {
            job_id: "01990f3e-0000-7000-8000-000000000001".parse().unwrap(),
            state: AttemptState::Succeeded,
            attempt: 1,
            timings: Timings { queue_us: 800, launches_us: vec![1_200], total_us: 2_500, ..Timings::default() },
            ran_on: Some(RanOn {
                worker: "w1".parse().unwrap(),
                device: 0,
                device_name: "CPU".to_owned(),
                emulated: true,
            }),
            printf_output: Some(PrintfOutput {
                text: "x=1.5\nx=2\n".to_owned(),
                dropped_bytes: 70_000,
                is_tail: false,
            }),
            round_trip: Duration::from_micros(4_200),
            outputs: vec![("y".to_owned(), UnreadOutput::Array(Array::from_slice(&[1.0_f32, 2.0])))],
        }
    }

    fn written(file: Option<&str>) -> Written {
        Written { name: "y".to_owned(), dtype: "f32", shape: vec![2], file: file.map(PathBuf::from), remark: None }
    }

    fn failed_job(failure: Failure) -> FailedJob {
        let JobResult { job_id, attempt, timings, ran_on, printf_output, round_trip, .. } = result();
        let (state, failure) = (AttemptState::Failed, Some(failure));
        let (session, outputs) = (None, Vec::new());
        FailedJob { job_id, state, attempt, failure, timings, ran_on, printf_output, session, round_trip, outputs }
    }

    #[test]
    fn a_success_shows_device_timings_and_files() {
        insta::assert_snapshot!(describe(&result(), &[written(Some("result.npy")), written(None)]));
    }

    #[test]
    fn json_of_a_success_a_failure_and_a_detached_job() {
        let failed =
            failed_job(Failure::new(Verdict::User, FailureCode::KernelFault, "misaligned address").at_line(Some(3)));
        let result = result();
        let shown = |report: &Report<'_>| serde_json::to_string_pretty(report).unwrap();
        insta::assert_snapshot!(
            "json_of_a_success",
            shown(&Report::of_result(&result, vec![written(Some("result.npy"))]))
        );
        insta::assert_snapshot!("json_of_a_failure", shown(&Report::of_failed(&failed)));
        insta::assert_snapshot!("json_of_a_detached_job", shown(&Report::of(result.job_id)));
    }

    #[test]
    fn the_help_names_every_field_of_the_json() {
        let failed = failed_job(Failure::new(Verdict::User, FailureCode::KernelFault, "m"));
        let result = result();
        json::check(json::SUBMIT, &Report::of_failed(&failed));
        json::check(json::SUBMIT, &Report::of_result(&result, vec![written(None)]));
    }
}
