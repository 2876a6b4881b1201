//! `gpufleet cancel`: end jobs that wait or run.

use std::time::Duration;

use clap::Args;
use gpufleet::{
    Fleet,
    schema::{JobId, JobState, Selection},
};
use gpufleet_ledger::{Ledger, PrefixMatch};

use super::{
    complaint::{Complaint, chain},
    connection,
    exit::Exit,
    options::{BrokerOptions, LedgerOptions},
    output,
    spec::LabelSpec,
    waiting::{self, Spinner},
};

/// Cancel jobs: those that wait never run, those that run are ended
///
/// The order is kept for seven days, so that it also reaches a worker that gets the job later. A job that already has an outcome
/// keeps it.
#[derive(Debug, Args)]
pub struct Options {
    /// Jobs by their ids, or by enough of the beginning where the ledger can be asked
    #[arg(value_name = "ID", required_unless_present = "label")]
    ids: Vec<String>,
    /// Cancel every job that carries this label and was submitted before now; with several, those that carry all
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<LabelSpec>,
    /// Wait until the ledger knows the jobs' outcomes, and tell them
    #[arg(long, requires = "ids")]
    wait: bool,
    /// How long --wait waits
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    broker: BrokerOptions,
    #[command(flatten)]
    ledger: LedgerOptions,
}

/// Between two looks at the ledger, which hears of an outcome within a few of these.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Closing takes milliseconds unless the broker is away.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    let work = async {
        let jobs = resolve(options).await?;
        let fleet = connection::fleet(&options.broker, Fleet::builder()).await?;
        let labels = options.label.iter().map(|label| (label.key.clone(), label.value.clone())).collect();
        let selection = Selection { jobs: jobs.clone(), labels };
        let ordered = fleet.cancel(selection, connection::caller()).await;
        // What is confirmed is on disk, whether or not the goodbye arrives.
        let _closed_in_time = tokio::time::timeout(CLOSE_DEADLINE, fleet.close()).await;
        ordered.map_err(|error| Complaint::new(Exit::Broker, connection::sentence(&chain(&error))))?;
        Ok(jobs)
    };
    let jobs = tokio::select! {
        jobs = Spinner::new("cancelling").around(work) => jobs?,
        () = waiting::interrupt() => return Err(interrupted("it is open which jobs are cancelled")),
    };
    if options.wait {
        return tokio::select! {
            exit = Spinner::new("waiting for the outcomes").around(outcomes(options, &jobs)) => exit,
            () = waiting::interrupt() => Err(interrupted("the jobs are cancelled all the same")),
        };
    }
    let what: Vec<String> = jobs.iter().map(ToString::to_string).chain(options.label.iter().map(describe)).collect();
    output::emit(&what.iter().map(|what| format!("asked to cancel {what}\n")).collect::<String>())?;
    Ok(Exit::Success)
}

fn describe(label: &LabelSpec) -> String {
    format!("jobs with label {}={}", label.key, label.value)
}

fn interrupted(consequence: &str) -> Complaint {
    Complaint::new(Exit::Interrupted, format!("interrupted: {consequence}"))
}

/// Whole ids need no ledger.
async fn resolve(options: &Options) -> Result<Vec<JobId>, Complaint> {
    let parsed: Vec<Option<JobId>> = options.ids.iter().map(|id| id.parse().ok()).collect();
    if parsed.iter().all(Option::is_some) {
        return Ok(parsed.into_iter().flatten().collect());
    }
    let ledger = connection::ledger(&options.ledger).await?;
    let mut jobs = Vec::new();
    for (id, parsed) in options.ids.iter().zip(parsed) {
        jobs.push(match parsed {
            Some(job) => job,
            None => by_prefix(&ledger, id).await?,
        });
    }
    ledger.close().await;
    Ok(jobs)
}

async fn by_prefix(ledger: &Ledger, id: &str) -> Result<JobId, Complaint> {
    match ledger.job_by_prefix(id).await.map_err(|error| connection::ledger_complaint(&error))? {
        PrefixMatch::One(detail) => Ok(detail.job.job_id),
        PrefixMatch::None => Err(Complaint::new(Exit::NotFound, format!("the ledger has no job {id:?}"))
            .hint("give the whole id of a job that the ledger does not know yet")),
        PrefixMatch::Many(_) => Err(Complaint::new(Exit::NotFound, format!("several jobs begin with {id:?}"))
            .hint("give more of the id; `gpufleet history` lists them")),
    }
}

/// Tells each job's outcome as it is known. Jobs that ended otherwise before the order reached them are no failure.
async fn outcomes(options: &Options, jobs: &[JobId]) -> Result<Exit, Complaint> {
    let ledger = connection::ledger(&options.ledger).await?;
    let deadline = tokio::time::Instant::now() + options.timeout;
    for job in jobs {
        let state = loop {
            let detail = ledger.job(*job).await.map_err(|error| connection::ledger_complaint(&error))?;
            if let Some(state) = detail.map(|detail| detail.job.state).filter(|state| is_final(*state)) {
                break state;
            }
            if tokio::time::Instant::now() >= deadline {
                let waited = humantime::format_duration(options.timeout);
                return Err(Complaint::new(Exit::DeadlinePassed, format!("job {job} has no outcome after {waited}"))
                    .hint("a job that waits is answered when a worker takes it: does one serve its pool? `gpufleet workers` lists them"));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        };
        output::emit(&format!("{job}  {state}\n"))?;
    }
    ledger.close().await;
    Ok(Exit::Success)
}

fn is_final(state: JobState) -> bool {
    !matches!(state, JobState::Queued | JobState::Running)
}
