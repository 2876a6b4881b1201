//! `gpufleet wait`: waits for submitted jobs by the ledger.

use std::time::Duration;

use clap::Args;
use gpufleet::schema::{AttemptState, Failure, FailureCode, JobId, JobState, Verdict};
use gpufleet_ledger::{JobRow, Ledger};
use tokio::time::{Instant, sleep};

use super::{
    complaint::Complaint,
    connection,
    exit::{self, Exit},
    json, lookup,
    options::{Format, LedgerOptions},
    output, spec,
    waiting::{self, Spinner},
};

/// Wait until jobs have ended
///
/// Prints the state of each job. The exit code is 0 if all have succeeded, else that of the first one that has not, as for `gpufleet submit`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}\n\n{}", json::WAIT, exit::TABLE))]
pub struct Options {
    /// Ids of the jobs. The beginning or the end of an id is enough if it is unique; @last is the job that you submitted last
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    /// Return as soon as one of the jobs has ended, and report only that one
    #[arg(long)]
    any: bool,
    /// Longest time to wait, such as 30s or 2h [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = spec::duration)]
    timeout: Option<Duration>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    ledger: LedgerOptions,
}

const EXAMPLES: &str = "\
Examples:
  id=$(gpufleet submit saxpy --arg a=2 --zeros x=f32[3] --zeros y=f32[3] --detach)
  gpufleet wait $id && gpufleet fetch $id --dir results";

/// The ledger has an outcome a moment after the reply: the recorder writes events every 100 ms at the most.
const POLL: Duration = Duration::from_millis(250);
/// A job that was submitted a moment ago may not be recorded yet.
const APPEARS_WITHIN: Duration = Duration::from_secs(5);

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    let ledger = connection::ledger(&options.ledger).await?;
    let told = match options.ids.as_slice() {
        [id] => format!("waiting for job {id}"),
        ids => format!("waiting for {} jobs", ids.len()),
    };
    let waiting = Spinner::new(told).around(wait(&ledger, options));
    let jobs = tokio::select! {
        jobs = waiting => jobs?,
        () = waiting::interrupt() => return Err(Complaint::new(Exit::Interrupted, "interrupted; the jobs keep running")),
    };
    match options.output {
        Format::Table => output::emit(&jobs.iter().map(line).collect::<String>())?,
        Format::Json => output::emit_json(&jobs)?,
    }
    Ok(jobs.iter().map(exit_of).find(|exit| *exit != Exit::Success).unwrap_or(Exit::Success))
}

/// The jobs that have ended: all of them, or the first.
async fn wait(ledger: &Ledger, options: &Options) -> Result<Vec<JobRow>, Complaint> {
    let since = Instant::now();
    let mut ids = Vec::with_capacity(options.ids.len());
    for id in &options.ids {
        ids.push(find(ledger, id, since).await?);
    }
    loop {
        let states = ledger.job_states(&ids).await.map_err(|error| connection::ledger_complaint(&error))?;
        let mut ended: Vec<JobId> =
            ids.iter().copied().filter(|id| states.get(id).is_some_and(|state| state.is_final())).collect();
        if options.any {
            ended.truncate(1);
        }
        if ended.len() == ids.len() || (options.any && !ended.is_empty()) {
            return rows(ledger, &ended).await;
        }
        if let Some(timeout) = options.timeout.filter(|timeout| since.elapsed() >= *timeout) {
            return Err(late(ids.len() - ended.len(), timeout));
        }
        sleep(POLL).await;
    }
}

async fn rows(ledger: &Ledger, ids: &[JobId]) -> Result<Vec<JobRow>, Complaint> {
    let mut rows = Vec::with_capacity(ids.len());
    for id in ids {
        let job = ledger.job(*id).await.map_err(|error| connection::ledger_complaint(&error))?;
        rows.extend(job.map(|detail| detail.job));
    }
    Ok(rows)
}

/// The job that the text names, once it is recorded.
async fn find(ledger: &Ledger, id: &str, since: Instant) -> Result<JobId, Complaint> {
    loop {
        match lookup::if_recorded(ledger, id).await? {
            Some(detail) => return Ok(detail.job.job_id),
            None if since.elapsed() >= APPEARS_WITHIN => return Err(lookup::missing(id)),
            None => sleep(POLL).await,
        }
    }
}

fn late(open: usize, timeout: Duration) -> Complaint {
    let (jobs, have) = if open == 1 { ("job", "has") } else { ("jobs", "have") };
    let timeout = humantime::format_duration(timeout);
    Complaint::new(Exit::DeadlinePassed, format!("{open} {jobs} {have} not ended within {timeout}"))
        .hint("they keep running; wait again, or see with `gpufleet history` how far they are")
}

fn line(job: &JobRow) -> String {
    match &job.failure {
        Some(failure) if job.state != JobState::Succeeded => {
            format!("{}  {}: {}\n", job.job_id, job.state, failure.message)
        }
        _ => format!("{}  {}\n", job.job_id, job.state),
    }
}

fn exit_of(job: &JobRow) -> Exit {
    let verdict = job
        .failure
        .as_ref()
        .and_then(|failure| Verdict::ALL.into_iter().find(|verdict| verdict.name() == failure.verdict));
    let failure = verdict.map(|verdict| Failure::new(verdict, FailureCode::Internal, ""));
    let state = match job.state {
        JobState::Succeeded => AttemptState::Succeeded,
        JobState::Cancelled => AttemptState::Cancelled,
        JobState::Expired => AttemptState::Expired,
        JobState::Dead => AttemptState::Dead,
        JobState::Failed | JobState::Queued | JobState::Running => AttemptState::Failed,
    };
    Exit::of_outcome(state, failure.as_ref())
}
