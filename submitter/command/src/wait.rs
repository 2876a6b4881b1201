//! `gpufleet wait`: waits for submitted jobs by the ledger.

use std::{collections::HashMap, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use clap::Args;
use gpufleet::schema::{AttemptState, Failure, FailureCode, JobId, JobState, Verdict};
use gpufleet_ledger::{JobDetail, JobRow, Ledger};
use tokio::time::{Instant, sleep};

use super::{
    complaint::Complaint,
    connection,
    exit::{self, Exit},
    json, lookup,
    options::{BrokerOptions, LedgerOptions, OutputOptions},
    outage::Patient,
    output, printed,
    progress::{ProgressDisplay, ProgressOptions, Subscription},
    recent::{self, Recent},
    spec, waiting,
};

/// Wait until jobs have ended
///
/// Prints the state of each job. The exit code is 0 if all have succeeded, else that of the first one that has not, as for `gpufleet submit`.
/// The progress of a single job comes from the broker.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}\n{}\n\n{}", json::WAIT, json::FOLLOW, exit::TABLE))]
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
    #[command(flatten)]
    progress: ProgressOptions,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    broker: BrokerOptions,
    #[command(flatten)]
    ledger: LedgerOptions,
}

const EXAMPLES: &str = "\
Examples:
  id=$(gpufleet submit saxpy --arg a=2 --zeros x=f32[3] --zeros y=f32[3] --detach)
  gpufleet wait $id && gpufleet fetch $id --dir results";

/// The ledger has an outcome a moment after the reply: the recorder writes events every 100 ms at the most.
const POLL: Duration = Duration::from_millis(250);
/// A job that was submitted a moment ago may not be recorded yet. If it takes longer, the recorder is down or behind.
const APPEARS_WITHIN: Duration = Duration::from_secs(5);
/// A job of which the ledger has nothing so long after its submission was never submitted, or its row was deleted.
const RECORDED_WITHIN: TimeDelta = TimeDelta::days(1);
/// Follows a message about the ledger.
const CONSOLATION: &str = "the jobs keep running";

/// A job to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wanted {
    id: JobId,
    /// How long the ledger may have nothing of it; none as long as the command waits.
    missing_for: Option<Duration>,
}

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    let told = match options.ids.as_slice() {
        [id] => format!("waiting for job {id}"),
        ids if options.progress.follow => return Err(not_one(ids.len())),
        ids => format!("waiting for {} jobs", ids.len()),
    };
    let mut display = ProgressDisplay::new(told, &options.progress, options.output.format);
    let waiting = display.spinner().around(wait(options, &mut display));
    let details = waiting::unless_interrupted(waiting, "interrupted; the jobs keep running").await?;
    if let [detail] = details.as_slice() {
        display.finish(detail.job.job_id, detail.job.attempt, &mut printed::by_deciding_attempt(detail))?;
        display.end_line()?;
    }
    let jobs: Vec<JobRow> = details.into_iter().map(|detail| detail.job).collect();
    options.progress.result_format(&options.output).print(&jobs, |jobs| jobs.iter().map(line).collect())?;
    Ok(jobs.iter().map(exit_of).find(|exit| *exit != Exit::Success).unwrap_or(Exit::Success))
}

fn not_one(jobs: usize) -> Complaint {
    Complaint::usage(format!("--follow shows one job, and {jobs} are given"))
        .hint("leave --follow out, or start a command for each job: gpufleet logs --follow ID")
}

/// The jobs that have ended: all of them, or the first.
async fn wait(options: &Options, display: &mut ProgressDisplay) -> Result<Vec<JobDetail>, Complaint> {
    let since = Instant::now();
    let deadline = options.timeout.and_then(|timeout| since.checked_add(timeout));
    let spinner = display.spinner();
    let mut patient = Patient::new(&spinner, deadline, CONSOLATION);
    let ledger = &patient.ask(async || connection::ledger(&options.ledger).await).await?;
    let mut wanted = Vec::with_capacity(options.ids.len());
    for id in &options.ids {
        wanted.push(find(ledger, id, options.timeout, since, &mut patient).await?);
    }
    let again: Vec<Recent> = recent::all().into_iter().filter(Recent::is_submitted_again).collect();
    let states = async |ids: &[JobId]| states(ledger, ids, &again).await;
    let ended = ended(&wanted, options, since, &mut patient, states);
    let ended = match wanted.as_slice() {
        [Wanted { id, .. }] => {
            let pool = async || ledger.job(*id).await.ok().flatten().and_then(|detail| detail.job.pool);
            Box::pin(display.during(ended, async || Subscription::connect(&options.broker, *id, &pool).await)).await?
        }
        _ => ended.await?,
    };
    let mut details = Vec::with_capacity(ended.len());
    for id in ended {
        let job =
            patient.ask(async || ledger.job(id).await.map_err(|error| connection::ledger_complaint(&error))).await?;
        details.extend(job);
    }
    Ok(details)
}

/// The states of the jobs. Of those that this user submitted again, the outcome of an earlier submission is not the one to wait for.
async fn states(ledger: &Ledger, ids: &[JobId], again: &[Recent]) -> Result<HashMap<JobId, JobState>, Complaint> {
    let complaint = |error| connection::ledger_complaint(&error);
    let mut states = ledger.job_states(ids).await.map_err(complaint)?;
    for job in again {
        if states.get(&job.job_id).is_some_and(|state| state.is_final()) {
            let submitted_at =
                ledger.job(job.job_id).await.map_err(complaint)?.and_then(|detail| detail.job.submitted_at);
            if !job.is_of_latest(submitted_at) {
                states.insert(job.job_id, JobState::Queued);
            }
        }
    }
    Ok(states)
}

/// The ids of the jobs that have ended: all of them, or the first.
async fn ended(
    wanted: &[Wanted],
    options: &Options,
    since: Instant,
    patient: &mut Patient<'_>,
    mut states: impl AsyncFnMut(&[JobId]) -> Result<HashMap<JobId, JobState>, Complaint>,
) -> Result<Vec<JobId>, Complaint> {
    let ids: Vec<JobId> = wanted.iter().map(|job| job.id).collect();
    let mut is_told = false;
    loop {
        let states = patient.ask(async || states(&ids).await).await?;
        let mut ended: Vec<JobId> =
            ids.iter().copied().filter(|id| states.get(id).is_some_and(|state| state.is_final())).collect();
        if options.any {
            ended.truncate(1);
        }
        if ended.len() == ids.len() || (options.any && !ended.is_empty()) {
            return Ok(ended);
        }
        let missing: Vec<&Wanted> = wanted.iter().filter(|job| !states.contains_key(&job.id)).collect();
        if patient.is_late() {
            return Err(late(ids.len() - ended.len(), missing.len(), options.timeout.unwrap_or_default()));
        }
        let is_gone = |job: &&&Wanted| job.missing_for.is_some_and(|most| since.elapsed() >= most);
        if let Some(gone) = missing.iter().find(is_gone) {
            return Err(lookup::missing(&gone.id.to_string()));
        }
        if let Some(first) = missing.first().filter(|_| since.elapsed() >= APPEARS_WITHIN && !is_told) {
            is_told = true;
            let told = format!(
                "the ledger does not have job {} yet; {CONSOLATION}, and this command waits. If it stays so, check the recorder with `gpufleet doctor`",
                first.id
            );
            patient.aside(|| output::warn(&told));
        }
        sleep(POLL).await;
    }
}

/// The job that the text names. A complete id needs no search.
async fn find(
    ledger: &Ledger,
    id: &str,
    timeout: Option<Duration>,
    since: Instant,
    patient: &mut Patient<'_>,
) -> Result<Wanted, Complaint> {
    let id = recent::resolve(id)?;
    if let Some(complete) = id.parse().ok().or_else(|| recent::complete(&id, &recent::all())) {
        return Ok(Wanted::of(complete, timeout, &recent::all(), Utc::now()));
    }
    loop {
        match patient.ask(async || lookup::if_recorded(ledger, &id).await).await? {
            Some(detail) => return Ok(Wanted { id: detail.job.job_id, missing_for: None }),
            None if patient.is_late() || since.elapsed() >= APPEARS_WITHIN => return Err(lookup::missing(&id)),
            None => sleep(POLL).await,
        }
    }
}

impl Wanted {
    /// A job that exists as far as is known is waited for as long as the user wants.
    fn of(id: JobId, timeout: Option<Duration>, recent: &[Recent], now: DateTime<Utc>) -> Self {
        let is_own = recent.iter().any(|job| job.job_id == id);
        let made = id.made_ms().and_then(DateTime::from_timestamp_millis);
        let is_new = made.is_some_and(|made| now - made < RECORDED_WITHIN);
        let waits = timeout.is_some() || is_own || is_new;
        Self { id, missing_for: (!waits).then_some(APPEARS_WITHIN) }
    }
}

fn late(open: usize, missing: usize, timeout: Duration) -> Complaint {
    let (jobs, have) = if open == 1 { ("job", "has") } else { ("jobs", "have") };
    let timeout = humantime::format_duration(timeout);
    let complaint = Complaint::new(Exit::DeadlinePassed, format!("{open} {jobs} {have} not ended within {timeout}"));
    match missing {
        0 => complaint.hint("they keep running; wait again, or see with `gpufleet history` how far they are"),
        missing => complaint.hint(format!(
            "the ledger has nothing of {missing} of them; check the recorder with `gpufleet doctor`, and the ids"
        )),
    }
}

/// How the job ended, and why.
pub fn line(job: &JobRow) -> String {
    match &job.failure {
        Some(failure) if job.state != JobState::Succeeded => {
            format!("{}  {}: {}\n", job.job_id, job.state, failure.message)
        }
        _ => format!("{}  {}\n", job.job_id, job.state),
    }
}

/// The exit code for the outcome of a job.
pub fn exit_of(job: &JobRow) -> Exit {
    let failure = job
        .failure
        .as_ref()
        .map(|failure| Failure::new(Verdict::of(&failure.verdict), FailureCode::of(&failure.code), ""));
    let state = match job.state {
        JobState::Succeeded => AttemptState::Succeeded,
        JobState::Cancelled => AttemptState::Cancelled,
        JobState::Expired => AttemptState::Expired,
        JobState::Dead => AttemptState::Dead,
        JobState::Later(word) => AttemptState::Later(word),
        JobState::Failed | JobState::Queued | JobState::Running => AttemptState::Failed,
    };
    Exit::of_outcome(state, failure.as_ref())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{
        command_line::{Command, Options as All},
        waiting::Spinner,
    };

    const ID: &str = "01990f3e-0000-7000-8000-000000000001";

    fn options(timeout: Option<&str>) -> Options {
        let timeout = timeout.into_iter().flat_map(|timeout| ["--timeout", timeout]);
        let words = ["gpufleet", "wait", ID].into_iter().chain(timeout);
        let Command::Wait(options) = All::try_parse_from(words).unwrap().command else { panic!("another command") };
        options
    }

    /// Waits for the job, of which these answers come in turn; the last one is repeated.
    async fn waited(
        options: &Options,
        answers: &[Result<Option<JobState>, Complaint>],
    ) -> (Result<Vec<JobId>, Complaint>, Duration) {
        let id: JobId = ID.parse().unwrap();
        let wanted = Wanted::of(id, options.timeout, &[], Utc::now());
        let (spinner, since) = (Spinner::new("waiting"), Instant::now());
        let deadline = options.timeout.map(|timeout| since + timeout);
        let mut answers = answers.iter();
        let mut last = answers.next().unwrap();
        let states = async |_: &[JobId]| {
            let answer = last.clone().map(|state| state.map(|state| (id, state)).into_iter().collect());
            last = answers.next().unwrap_or(last);
            answer
        };
        let mut patient = Patient::new(&spinner, deadline, CONSOLATION);
        let ended = ended(&[wanted], options, since, &mut patient, states).await;
        (ended, since.elapsed())
    }

    #[tokio::test]
    async fn a_wait_goes_on_while_the_ledger_restarts() {
        let away = Complaint { may_pass: true, ..Complaint::new(Exit::Ledger, "the database does not answer") };
        let answers = [Ok(Some(JobState::Running)), Err(away.clone()), Err(away), Ok(Some(JobState::Succeeded))];
        let (ended, _) = waited(&options(None), &answers).await;
        assert_eq!(ended.unwrap(), [ID.parse().unwrap()]);
    }

    #[tokio::test]
    async fn a_job_that_no_recorder_records_is_waited_for_until_the_timeout() {
        let (late, elapsed) = waited(&options(Some("700ms")), &[Ok(None)]).await;
        let late = late.unwrap_err();
        assert_eq!(late.exit, Exit::DeadlinePassed);
        assert!(late.hint.unwrap().contains("gpufleet doctor"));
        assert!(elapsed >= Duration::from_millis(700), "{elapsed:?}");
    }

    #[test]
    fn without_a_timeout_only_a_new_job_may_be_missing_for_long() {
        let old: JobId = ID.parse().unwrap();
        let now = Utc::now();
        assert_eq!(Wanted::of(old, None, &[], now).missing_for, Some(APPEARS_WITHIN));
        assert_eq!(Wanted::of(JobId::new(), None, &[], now).missing_for, None);
        let own = Recent::seen_at(old, recent::Seen::Submitted, now);
        assert_eq!(Wanted::of(old, None, &[own], now).missing_for, None);
        assert_eq!(Wanted::of(old, Some(Duration::from_secs(10)), &[], now).missing_for, None);
    }
}
