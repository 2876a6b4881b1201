//! `gpufleet cancel`: cancels jobs that are queued or running.

mod neighbours;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use clap::{ArgGroup, Args};
use gpufleet::{
    CancelScope, Fleet,
    schema::{JobId, JobState, Selection},
};
use gpufleet_ledger::Ledger;
use tokio::time::Instant;

use super::{
    complaint::Complaint,
    connection,
    exit::Exit,
    lookup,
    options::{BrokerOptions, LedgerOptions},
    outage::Patient,
    output, recent,
    spec::{self, LabelSpec},
    waiting::{self, Spinner},
};

/// Cancel jobs that are queued or running
///
/// An operator can cancel any job, other users only their own. Workers apply the cancellation for seven days, also to jobs that reach
/// them later. A job that has ended keeps its outcome. Given ids and labels, the command cancels the jobs that match either.
///
/// To stop a running job, its worker kills the job's executor, and the other jobs in it start again. The command names them if it finds the
/// ledger.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("jobs").args(["ids", "label"]).required(true).multiple(true))]
pub struct Options {
    /// Ids of jobs. The beginning or the end of an id is enough if it is unique, and needs the ledger. @last is the job that you submitted last
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Cancel every job with this label that was submitted before now. Repeatable; a job must have all of the labels
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<LabelSpec>,
    /// Wait until the ledger has the outcomes of the jobs given by id, and print them
    #[arg(long, requires = "ids")]
    wait: bool,
    /// Longest time for --wait, such as 30s or 2h
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = spec::duration)]
    timeout: Duration,
    #[command(flatten)]
    broker: BrokerOptions,
    #[command(flatten)]
    ledger: LedgerOptions,
}

const EXAMPLES: &str = "\
Examples:
  gpufleet cancel 01a20400-0b90-71cc-952e-7d6002819b6b
  gpufleet cancel --label run=7
  gpufleet cancel 01a20400 --wait --timeout 10s";

/// The interval of queries to the ledger, which receives an outcome within a few of them.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Part of the message if waiting fails, so that the user does not cancel again.
const STANDS: &str = "the cancellation stays in force";

type Labels = BTreeMap<String, String>;

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    let labels = labels(&options.label)?;
    let ids = &options.ids.iter().map(|id| whole(id)).collect::<Result<Vec<_>, _>>()?;
    let work = async {
        // A missing ledger must fail the command before it cancels anything.
        let ledger = match options.wait || needs_ledger(ids) {
            true => Some(connection::ledger(&options.ledger).await.map_err(nothing_done)?),
            false if ids.is_empty() => None,
            false => neighbours::ledger(&options.ledger).await,
        };
        let jobs = resolve(ids, ledger.as_ref()).await?;
        // Once the job is cancelled, it has no neighbours any more.
        let neighbours = match &ledger {
            Some(ledger) => neighbours::told(ledger, &jobs).await,
            None => None,
        };
        let selection = Selection { jobs: jobs.clone(), labels: labels.clone() };
        let give = async |fleet: &Fleet| fleet.cancel(selection, connection::caller()).await;
        let scope = connection::order(&options.broker, give).await?;
        Ok((jobs, ledger, neighbours, scope))
    };
    let work = Spinner::new("cancelling").around(work);
    let (jobs, ledger, neighbours, scope) =
        waiting::unless_interrupted(work, "interrupted: some of the jobs may be cancelled").await?;
    if scope == CancelScope::Own {
        output::note("this user is not an operator: only its own jobs are cancelled, all others keep running");
    }
    if let Some(neighbours) = neighbours {
        output::note(&neighbours);
    }
    let exit = match (&ledger, options.wait) {
        (Some(ledger), true) => {
            let waiting = outcomes(ledger, &jobs, options.timeout);
            waiting::unless_interrupted(waiting, &format!("interrupted: {STANDS}")).await
        }
        _ => output::emit(&asked(&jobs, &labels)).map(|()| Exit::Success),
    };
    if let Some(ledger) = ledger {
        ledger.close().await;
    }
    exit
}

/// The id in full if this user submitted the job a while ago, because then the ledger is not needed.
fn whole(id: &str) -> Result<String, Complaint> {
    let id = recent::resolve(id)?;
    Ok(recent::complete(&id, &recent::all()).map_or(id, |complete| complete.to_string()))
}

fn nothing_done(complaint: Complaint) -> Complaint {
    let hint = complaint
        .hint
        .clone()
        .unwrap_or_else(|| "without --wait, complete ids and labels do not need the ledger".to_owned());
    complaint.hint(format!("nothing was cancelled; {hint}"))
}

/// Rejects two values for one key: no job has both, so the user means something else.
fn labels(given: &[LabelSpec]) -> Result<Labels, Complaint> {
    let mut labels = Labels::new();
    for LabelSpec { key, value } in given {
        match labels.entry(key.clone()) {
            Entry::Vacant(entry) => _ = entry.insert(value.clone()),
            Entry::Occupied(entry) if entry.get() == value => {}
            Entry::Occupied(entry) => {
                let other = entry.get();
                return Err(Complaint::usage(format!("no job has both labels {key}={other} and {key}={value}")).hint(
                    "a job must have all of the given labels; to cancel the jobs with either value, run two commands",
                ));
            }
        }
    }
    Ok(labels)
}

/// A line for each job, and one line for all labels together.
fn asked(jobs: &[JobId], labels: &Labels) -> String {
    let mut text: String = jobs.iter().map(|job| format!("requested cancellation of {job}\n")).collect();
    let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    match pairs.as_slice() {
        [] => {}
        [only] => text.push_str(&format!("requested cancellation of the jobs with label {only}\n")),
        all => text.push_str(&format!("requested cancellation of the jobs with labels {}\n", all.join(" and "))),
    }
    text
}

/// Complete ids need no ledger.
fn needs_ledger(ids: &[String]) -> bool {
    ids.iter().any(|id| id.parse::<JobId>().is_err())
}

async fn resolve(ids: &[String], ledger: Option<&Ledger>) -> Result<Vec<JobId>, Complaint> {
    let mut jobs = Vec::new();
    for id in ids {
        jobs.push(match id.parse() {
            Ok(job) => job,
            Err(_) => by_part(ledger.expect("a part of an id makes the command connect to the ledger"), id).await?,
        });
    }
    Ok(jobs)
}

async fn by_part(ledger: &Ledger, id: &str) -> Result<JobId, Complaint> {
    match lookup::in_ledger(ledger, id).await {
        Ok(detail) => Ok(detail.job.job_id),
        Err(missing) if missing.exit == Exit::NotFound && missing.detail.is_none() => {
            Err(missing.hint("for a job that the ledger does not have yet, give the complete id"))
        }
        Err(complaint) => Err(complaint),
    }
}

/// Prints each job's outcome as soon as it is known. A job that ended before its cancellation is not an error.
async fn outcomes(ledger: &Ledger, jobs: &[JobId], timeout: Duration) -> Result<Exit, Complaint> {
    let spinner = Spinner::of_many("waiting for the outcomes", jobs.len());
    spinner.clone().around(await_outcomes(ledger, jobs, timeout, &spinner)).await
}

async fn await_outcomes(
    ledger: &Ledger,
    jobs: &[JobId],
    timeout: Duration,
    spinner: &Spinner,
) -> Result<Exit, Complaint> {
    // A deadline beyond the clock's range means no deadline.
    let mut patient = Patient::new(spinner, Instant::now().checked_add(timeout), STANDS);
    for job in jobs {
        let state = loop {
            let state = patient.ask(async || final_state(ledger, *job).await).await;
            if let Some(state) = state.map_err(stands)? {
                break state;
            }
            if patient.is_late() {
                let waited = humantime::format_duration(timeout);
                let message = format!("{STANDS}, but job {job} has no outcome after {waited}");
                return Err(Complaint::new(Exit::DeadlinePassed, message)
                    .hint("a queued job is cancelled when a worker takes it; check with `gpufleet workers` that a worker serves its pool"));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        };
        spinner.advance();
        spinner.aside(|| output::emit(&format!("{job}  {state}\n")))?;
    }
    Ok(Exit::Success)
}

fn stands(complaint: Complaint) -> Complaint {
    Complaint { message: format!("{STANDS}, but {}", complaint.message), ..complaint }
}

async fn final_state(ledger: &Ledger, job: JobId) -> Result<Option<JobState>, Complaint> {
    let states = ledger.job_states(&[job]).await.map_err(|error| connection::ledger_complaint(&error))?;
    Ok(states.get(&job).copied().filter(|state| state.is_final()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(labels: &[&str]) -> Vec<LabelSpec> {
        labels.iter().map(|label| label.parse().unwrap()).collect()
    }

    #[test]
    fn a_key_with_two_values_is_refused_because_it_would_cancel_no_job() {
        let refused = labels(&given(&["run=7", "run=8"])).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        assert_eq!(refused.message, "no job has both labels run=7 and run=8");
        assert_eq!(labels(&given(&["run=7", "run=7"])).unwrap().len(), 1);
    }

    #[test]
    fn several_labels_are_reported_as_one_selection() {
        let job: JobId = "01990f3e-0000-7000-8000-000000000001".parse().unwrap();
        let both = labels(&given(&["b=2", "a=1"])).unwrap();
        let one = labels(&given(&["a=1"])).unwrap();
        assert_eq!(
            asked(&[job], &both),
            format!("requested cancellation of {job}\nrequested cancellation of the jobs with labels a=1 and b=2\n")
        );
        assert_eq!(asked(&[], &one), "requested cancellation of the jobs with label a=1\n");
    }

    #[test]
    fn a_part_of_an_id_needs_the_ledger_and_a_complete_id_does_not() {
        let whole = "01990f3e-0000-7000-8000-000000000001".to_owned();
        assert!(!needs_ledger(std::slice::from_ref(&whole)));
        assert!(needs_ledger(&[whole, "01990f3e".to_owned()]));
    }
}
