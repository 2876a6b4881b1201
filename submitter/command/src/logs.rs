//! `gpufleet logs`: prints the printf output of a job's kernels, or the output of a host program.

use clap::Args;
use gpufleet::schema::{AttemptState, PrintfOutput, host_program::LOG};
use gpufleet_ledger::{AttemptRow, JobDetail};

use super::{
    complaint::Complaint,
    exit::{self, Exit},
    lookup,
    options::BrokerOptions,
    output, printed,
    progress::ProgressOptions,
    source::SourceOptions,
    spec,
};

mod follow;

/// Print the printf output of a job's kernels, or the output of a host program
///
/// The text goes to standard output unchanged. A note on standard error says if the attempt printed nothing, or more than the 64 KiB
/// that are kept: the beginning of what kernels print, and the end of what a host program writes.
///
/// With --follow, the text of a job that runs comes from the broker, while the ledger says when the job has ended. The exit code is then
/// that of the job, as for `gpufleet wait`.
#[derive(Debug, Args)]
#[command(after_long_help = exit::TABLE)]
#[command(mut_arg("follow", |arg| arg.short('f').conflicts_with("attempt").help("Print the text while the job runs, until it has ended")))]
#[command(mut_arg("quiet", |arg| arg.requires("follow").help("Show no progress on standard error, only the text")))]
pub struct Options {
    /// Id of the job. The beginning or the end is enough if it is unique; @last is the job that you submitted last
    id: String,
    /// Number of the attempt, as `gpufleet show` lists it [default: the one that decided the outcome, else the latest]
    #[arg(long, value_name = "N", value_parser = spec::whole(1..=u32::MAX))]
    attempt: Option<u32>,
    #[command(flatten)]
    progress: ProgressOptions,
    #[command(flatten)]
    broker: BrokerOptions,
    #[command(flatten)]
    source: SourceOptions,
}

/// The text to print, and a note about it.
#[derive(Debug, PartialEq, Eq)]
struct Logs<'a> {
    text: &'a str,
    note: Option<String>,
}

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    if options.progress.follow {
        return follow::run(options).await;
    }
    let detail = lookup::job(&options.id, &options.source).await?;
    let logs = logs(&detail, options.attempt)?;
    output::emit(logs.text)?;
    if let Some(note) = &logs.note {
        output::warn(note);
    }
    Ok(Exit::Success)
}

fn logs(detail: &JobDetail, number: Option<u32>) -> Result<Logs<'_>, Complaint> {
    let job = &detail.job;
    let Some(number) = number.or(job.attempt) else {
        return Ok(Logs { text: "", note: Some(format!("job {} has not started yet", job.job_id)) });
    };
    let attempt = detail.attempts.iter().find(|attempt| attempt.attempt == number);
    let attempt = attempt.ok_or_else(|| no_such_attempt(detail, number))?;
    Ok(match &attempt.printf_output {
        Some(printed) => Logs { text: &printed.text, note: missing(detail, printed) },
        None => Logs { text: "", note: Some(nothing(detail, attempt)) },
    })
}

/// The note about an incomplete text. A host program may have kept all of its output.
fn missing(detail: &JobDetail, printed: &PrintfOutput) -> Option<String> {
    let missing = printed::missing(printed)?;
    let log = detail.outputs.iter().find(|output| output.name == LOG && printed.is_tail && !output.is_expired);
    let Some(_) = log else { return Some(missing) };
    let id = detail.job.job_id;
    Some(format!("{missing}; `gpufleet fetch {id} --dir DIRECTORY` writes all of it to DIRECTORY/log"))
}

fn nothing(detail: &JobDetail, attempt: &AttemptRow) -> String {
    let (number, job_id) = (attempt.attempt, detail.job.job_id);
    match attempt.state {
        AttemptState::Running => {
            format!(
                "attempt {number} of job {job_id} is recorded as running; the ledger gets its output when it ends; `gpufleet logs --follow {job_id}` prints it before"
            )
        }
        _ => format!("attempt {number} of job {job_id} printed nothing"),
    }
}

fn no_such_attempt(detail: &JobDetail, number: u32) -> Complaint {
    let known: Vec<String> = detail.attempts.iter().map(|attempt| attempt.attempt.to_string()).collect();
    let hint = if known.is_empty() {
        "the job has no attempts yet".to_owned()
    } else {
        format!("the job's attempts: {}", known.join(", "))
    };
    Complaint::new(Exit::NotFound, format!("job {} has no attempt {number}", detail.job.job_id)).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{history::tests::job, show::tests::attempt};

    const ID: &str = "01990f3e-0000-7000-8000-000000000001";

    fn detail() -> JobDetail {
        let printed =
            |text: &str, dropped_bytes| Some(PrintfOutput { text: text.to_owned(), dropped_bytes, is_tail: false });
        let first =
            AttemptRow { attempt: 1, state: AttemptState::Lost, printf_output: printed("half\n", 0), ..attempt() };
        let second = AttemptRow { attempt: 2, printf_output: printed("all of it\n", 70), ..attempt() };
        let mut job = job(ID);
        job.attempt = Some(2);
        JobDetail { job, attempts: vec![first, second], outputs: Vec::new() }
    }

    #[test]
    fn the_deciding_attempt_is_shown_unless_another_is_requested() {
        let detail = detail();
        let note = Some("only the first 10 bytes were kept; 70 more were dropped".to_owned());
        assert_eq!(logs(&detail, None).unwrap(), Logs { text: "all of it\n", note });
        assert_eq!(logs(&detail, Some(1)).unwrap(), Logs { text: "half\n", note: None });
        let complaint = logs(&detail, Some(7)).unwrap_err();
        assert_eq!(complaint.exit, Exit::NotFound);
        assert!(complaint.hint.unwrap().contains("1, 2"));
    }

    #[test]
    fn of_a_host_program_the_note_names_where_all_of_its_output_is() {
        let mut detail = detail();
        detail.attempts[1].printf_output.as_mut().unwrap().is_tail = true;
        let note = "only the last 10 bytes are here; 70 before them were left out";
        assert_eq!(logs(&detail, None).unwrap().note.unwrap(), note);
        detail.outputs = vec![gpufleet_ledger::OutputRow {
            name: LOG.to_owned(),
            dtype: gpufleet::schema::Dtype::U8,
            shape: vec![80],
            digest: None,
            expires_at: chrono::DateTime::UNIX_EPOCH,
            is_expired: false,
        }];
        let told = logs(&detail, None).unwrap().note.unwrap();
        assert_eq!(told, format!("{note}; `gpufleet fetch {ID} --dir DIRECTORY` writes all of it to DIRECTORY/log"));
        detail.outputs[0].is_expired = true;
        assert_eq!(logs(&detail, None).unwrap().note.unwrap(), note);
    }

    #[test]
    fn the_note_says_why_there_is_no_text() {
        let said = |change: &dyn Fn(&mut JobDetail)| {
            let mut detail = detail();
            change(&mut detail);
            let logs = logs(&detail, None).unwrap();
            assert_eq!(logs.text, "");
            logs.note.unwrap()
        };
        assert_eq!(
            said(&|detail| detail.attempts[1].printf_output = None),
            format!("attempt 2 of job {ID} printed nothing")
        );
        let running = said(&|detail| {
            detail.attempts[1] = AttemptRow { state: AttemptState::Running, printf_output: None, ..attempt() };
        });
        assert!(running.contains("is recorded as running"), "{running}");
        assert_eq!(said(&|detail| detail.job.attempt = None), format!("job {ID} has not started yet"));
    }
}
