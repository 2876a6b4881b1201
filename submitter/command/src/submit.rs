//! `gpufleet submit`: sends one job and, unless detached, waits for its result.

use std::{pin::pin, time::Duration};

use futures::FutureExt as _;
use gpufleet::{
    Fleet, Job, JobError, JobHandle, JobResult, SubmitError, UnreadOutput,
    schema::{JobId, PoolName, PrintfOutput, Program},
};

use super::{
    complaint::{Complaint, chain},
    connection,
    exit::Exit,
    kept, output,
    progress::{ProgressDisplay, Subscription},
    recent::{self, Seen},
    waiting::{self, Spinner},
};

mod chained;
mod deadline;
mod dry_run;
mod elements;
mod entry;
mod failure;
mod keeping;
mod meant_pool;
mod options;
mod plan;
mod report;
mod saving;
mod task_file;

use chained::LazyLedger;
use deadline::Deadline;
pub use failure::complaint as failed;
pub use options::Options;
use plan::Plan;
pub use plan::{SourceText, given_once, invalid};
use report::Written;

/// The time for closing the connection after the deadline has passed. A working connection closes sooner.
const CLOSE_AFTER_DEADLINE: Duration = Duration::from_millis(500);

pub async fn run(options: Options) -> Result<Exit, Complaint> {
    let blobs = connection::blobs(&options.blobs, &options.producer.broker)?;
    let plan = planned(&options, blobs.is_some()).await?;
    if options.dry_run {
        dry_run::check_store(blobs).await?;
        return dry_run::print(&plan, options.output.format).map(|()| Exit::Success);
    }
    let deadline = Deadline::after(options.timeout);
    let mut builder = Fleet::builder().affinity(options.affinity);
    if let Some(location) = blobs {
        builder = builder.blobs(location);
    }
    let connecting = connection::producer(&options.producer, builder);
    let spinner = Spinner::new("connecting to the broker").quiet(options.progress.quiet);
    let fleet = tokio::select! {
        fleet = spinner.around(connecting) => fleet?,
        () = waiting::interrupt() => {
            return Err(Complaint::new(Exit::Interrupted, "interrupted before the job was submitted"));
        }
        () = deadline.passed() => return Err(not_connected(&deadline)),
    };
    let exit = Box::pin(submit(&fleet, plan, &options, &deadline)).await;
    // Also after a failure, because the ledger must still get the event of the submission. The wait is short, because the worker reports
    // the job too.
    let close_deadline = if deadline.has_passed() { CLOSE_AFTER_DEADLINE } else { connection::CLOSE_DEADLINE };
    tokio::select! {
        _closed_in_time = tokio::time::timeout(close_deadline, fleet.close()) => {}
        // A second Ctrl-C ends the command at once.
        () = waiting::interrupt() => {}
    }
    exit
}

/// The job, with the outputs of other jobs that it takes as inputs.
async fn planned(options: &Options, has_store: bool) -> Result<Plan, Complaint> {
    let mut ledger = LazyLedger::new(&options.ledger);
    let inputs = chained::find(options, &mut ledger).await?;
    let mut plan = Plan::read(options, has_store, &inputs)?;
    chained::resolve(&mut plan, &mut ledger).await?;
    ledger.close().await;
    plan.checked(options)
}

async fn submit(fleet: &Fleet, plan: Plan, options: &Options, deadline: &Deadline) -> Result<Exit, Complaint> {
    let (id, pool) = (plan.job.id(), plan.pool.clone());
    let format = options.progress.result_format(&options.output);
    if options.detach
        && let Some(warning) = plan.keeping.warning()
    {
        output::warn(&warning);
    }
    let spinner = Spinner::new("submitting the job").quiet(options.progress.quiet);
    let confirmed = confirmed(fleet, plan.job.clone(), &spinner);
    let mut handle = tokio::select! {
        handle = spinner.clone().around(confirmed) => match handle {
            Ok(handle) => handle,
            Err(error) => {
                let complaint = refused(&error, plan.job.program(), plan.has_store);
                return Err(meant_pool::explain(complaint, &error, options).await);
            }
        },
        () = waiting::interrupt() => return Err(interrupted_before()),
        () = deadline.passed() => {
            report::unfinished(id, format)?;
            return Err(unconfirmed(fleet, id, deadline));
        }
    };
    recent::note(id, Seen::Submitted);
    if options.detach {
        report::submitted(id, format)?;
        waiting::warn_if_unserved(fleet, &pool, deadline.left()).await;
        return Ok(Exit::Success);
    }
    let waiting_for = format!("waiting for job {id}");
    let mut display = ProgressDisplay::new(waiting_for, &options.progress, options.output.format);
    tokio::select! {
        outcome = complete(fleet, &plan, &mut handle, deadline, &mut display) => {
            conclude(outcome, &plan, options, display)
        }
        () = waiting::interrupt() => {
            report::unfinished(id, format)?;
            output::note(&format!("interrupted: {}", plan.keeping.advice(id)));
            Ok(Exit::Interrupted)
        }
    }
}

/// Waits for the broker's confirm, and warns about what delays it.
async fn confirmed(fleet: &Fleet, job: Job, spinner: &Spinner) -> Result<JobHandle, SubmitError> {
    let mut submitting = pin!(fleet.submit(job));
    tokio::select! {
        handle = &mut submitting => return handle,
        trouble = fleet.held_up() => {
            spinner.aside(|| output::warn(&format!("{trouble}; the job is sent as soon as the broker accepts it")));
        }
    }
    submitting.await
}

/// A job that succeeded, and what became of its outputs.
struct Completed {
    result: JobResult<UnreadOutput>,
    written: Vec<Written>,
    lost: Option<Complaint>,
}

/// Waits for the reply, and writes the outputs to their files.
async fn complete(
    fleet: &Fleet,
    plan: &Plan,
    handle: &mut JobHandle,
    deadline: &Deadline,
    display: &mut ProgressDisplay,
) -> Result<Completed, JobError> {
    let (job_id, spinner) = (handle.id(), display.spinner());
    let waiting = wait(fleet, &plan.pool, handle, deadline, spinner);
    let subscribe = async || Subscription::to(fleet.clone(), &plan.pool, job_id).await;
    let result = display.during(waiting, subscribe).await?;
    let spinner = Spinner::new("writing the outputs").quiet(display.is_quiet());
    let saving = spinner.around(saving::save_all(fleet, &result, &plan.saves));
    let saved = tokio::time::timeout(deadline.left(), saving).await;
    let waited = deadline.timeout();
    let (written, lost) = saved.map_err(|_| JobError::DeadlinePassed { job_id, waited })?;
    Ok(Completed { result, written, lost })
}

/// Waits for the reply, and warns if no worker serves the pool.
async fn wait(
    fleet: &Fleet,
    pool: &PoolName,
    handle: &mut JobHandle,
    deadline: &Deadline,
    spinner: Spinner,
) -> Result<JobResult<UnreadOutput>, JobError> {
    /// A worker answers a small job sooner, and then the check is not worth its cost.
    const ASK_AFTER: Duration = Duration::from_millis(500);
    let outcome = match handle.wait_unread(deadline.left().min(ASK_AFTER)).await {
        Err(JobError::DeadlinePassed { .. }) if !deadline.has_passed() => {
            waiting::warn_if_unserved(fleet, pool, deadline.left()).await;
            spinner.around(handle.wait_unread(deadline.left())).await
        }
        outcome => outcome,
    };
    outcome.map_err(|error| match error {
        JobError::DeadlinePassed { job_id, .. } => JobError::DeadlinePassed { job_id, waited: deadline.timeout() },
        other => other,
    })
}

fn conclude(
    outcome: Result<Completed, JobError>,
    plan: &Plan,
    options: &Options,
    mut display: ProgressDisplay,
) -> Result<Exit, Complaint> {
    let format = options.progress.result_format(&options.output);
    let mut ended = |job_id, attempt, printed: &mut Option<PrintfOutput>| {
        recent::note(job_id, Seen::Ended);
        display.finish(job_id, Some(attempt), printed)?;
        display.end_line()
    };
    match outcome {
        Ok(Completed { mut result, written, lost }) => {
            ended(result.job_id, result.attempt, &mut result.printf_output)?;
            report::succeeded(&result, written, format)?;
            match lost {
                None => Ok(Exit::Success),
                Some(complaint) => Err(complaint.hint(plan.keeping.after_loss(result.job_id))),
            }
        }
        Err(JobError::Failed(mut failed)) => {
            ended(failed.job_id, failed.attempt, &mut failed.printf_output)?;
            report::failed(&failed, format)?;
            Err(failure::complaint(&failed, plan.source.as_ref()))
        }
        Err(error @ JobError::DeadlinePassed { .. }) => {
            let id = error.job_id();
            report::unfinished(id, format)?;
            Err(Complaint::new(Exit::DeadlinePassed, error.to_string()).hint(plan.keeping.advice(id)))
        }
        Err(error @ JobError::Closed { job_id }) => {
            Err(Complaint::new(Exit::Broker, error.to_string()).hint(plan.keeping.advice(job_id)))
        }
        Err(error @ JobError::Unavailable { .. }) => Err(Complaint::new(Exit::NotFound, error.to_string())),
        Err(error @ JobError::BadReply { .. }) => Err(Complaint::new(Exit::FleetFailed, error.to_string()).hint(
            "check that the worker and this command have the same version and use the same blob store (--blobs)",
        )),
    }
}

fn not_connected(deadline: &Deadline) -> Complaint {
    Complaint::new(Exit::DeadlinePassed, format!("failed to connect to the broker within {deadline}"))
        .hint("the job was not submitted; check the broker, or submit again with a longer --timeout")
}

/// The job may be in a buffer of the broker, which processes it later.
fn unconfirmed(fleet: &Fleet, id: JobId, deadline: &Deadline) -> Complaint {
    let why = fleet.held_up().now_or_never().map(|why| format!(": {why}")).unwrap_or_default();
    Complaint::new(Exit::DeadlinePassed, format!("the broker did not confirm job {id} within {deadline}{why}")).hint(
        format!("the job may still be submitted, and then it runs later; `gpufleet show {id}` shows whether it was. If not, submit it again"),
    )
}

fn interrupted_before() -> Complaint {
    Complaint::new(Exit::Interrupted, "interrupted before the broker confirmed the job")
        .hint("the job may still run; if it does, `gpufleet history` lists it")
}

/// The complaint about a job that was not submitted.
pub fn refused(error: &SubmitError, program: &Program<'_>, has_store: bool) -> Complaint {
    let told = |exit| Complaint::new(exit, chain(error));
    match error {
        SubmitError::Input(problem) => chained::complaint(problem),
        SubmitError::Ledger(problem) => kept::complaint(problem),
        SubmitError::Invalid(problem) => plan::invalid(problem, program),
        SubmitError::TooLarge { problem, .. } => plan::too_large(problem, has_store),
        SubmitError::Blob { source, .. } => {
            Complaint::bad_input(chain(error)).hint(connection::blob_hint(source))
        }
        SubmitError::File { .. } => told(Exit::BadInput).hint("check that no other program changes the file"),
        SubmitError::Encode { .. } | SubmitError::AlreadySubmitted { .. } => told(Exit::Internal),
        SubmitError::NoQueue { pool, .. } => told(Exit::Broker).hint(format!(
            "check the pool's name (`gpufleet workers` lists the pools in service), or start a worker: gpufleet-worker run --pool {pool}"
        )),
        SubmitError::NoSlots { pool } => told(Exit::Broker).hint(format!(
            "submit without --affinity, or start the workers of the pool with --pool {pool}:affinity"
        )),
        SubmitError::NoSessions { pool } => told(Exit::BadInput)
            .hint(format!("choose another pool, or start a worker that offers sessions: gpufleet-worker run --pool {pool}:sessions=1")),
        SubmitError::NoPrograms { pool } => told(Exit::BadInput)
            .hint(format!("choose another pool, or start a worker that runs host programs: gpufleet-worker run --pool {pool}:programs=1 --environment NAME=FOLDER")),
        SubmitError::SessionRefused { .. } | SubmitError::ProgramRefused { .. } => told(Exit::Broker)
            .hint("check with `gpufleet workers` that workers serve the pool, and try again once they have caught up"),
        SubmitError::Refused { .. } => {
            told(Exit::Broker).hint("check with `gpufleet workers` that workers serve the pool, and submit again once they have caught up")
        }
        SubmitError::Unknown { job_id, .. } => told(Exit::Broker)
            .hint(format!("`gpufleet show {job_id}` shows whether it arrived; if not, submit it again (a job may safely run twice)")),
        SubmitError::Declare(problem) => connection::declare_complaint(problem),
        SubmitError::Publish(_) => connection::publish_complaint(&chain(error)),
    }
}
