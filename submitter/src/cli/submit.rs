//! `gpufleet submit`: send one job and, unless detached, wait for what comes back.

use std::{pin::pin, time::Duration};

use gpufleet::{Fleet, Job, JobError, JobHandle, JobResult, PoolDepth, SubmitError, schema::PoolName};

use super::{
    complaint::{Complaint, chain},
    connection,
    exit::Exit,
    output,
    waiting::{self, Spinner},
};

mod failure;
mod options;
mod plan;
mod report;
mod task_file;

pub use options::Options;
use plan::Plan;

pub async fn run(options: Options) -> Result<Exit, Complaint> {
    let blobs = connection::blobs(&options.blobs, &options.producer.broker);
    let plan = Plan::of(&options, blobs.is_some())?;
    let mut builder = Fleet::builder().wait_deadline(options.timeout);
    if let Some(folder) = blobs {
        builder = builder.blobs(folder);
    }
    let connecting = connection::producer(&options.producer, builder);
    let fleet = tokio::select! {
        fleet = Spinner::new("connecting to the broker").around(connecting) => fleet?,
        () = waiting::interrupt() => return Err(interrupted_before()),
    };
    let exit = submit(&fleet, plan, &options).await;
    // Also after a failure, because the ledger must still get the event of the submission. The command does not wait for it for long, because
    // the worker reports the job too.
    tokio::select! {
        _closed_in_time = tokio::time::timeout(connection::CLOSE_DEADLINE, fleet.close()) => {}
        // A second Ctrl-C ends the command at once.
        () = waiting::interrupt() => {}
    }
    exit
}

async fn submit(fleet: &Fleet, plan: Plan, options: &Options) -> Result<Exit, Complaint> {
    let pool = plan.pool.clone();
    let spinner = Spinner::new("submitting the job");
    let confirmed = confirmed(fleet, plan.job.clone(), &spinner);
    let mut handle = tokio::select! {
        handle = spinner.clone().around(confirmed) => handle.map_err(|error| refused(&error, &plan))?,
        () = waiting::interrupt() => return Err(interrupted_before()),
    };
    if options.detach {
        report::submitted(handle.id(), options.output)?;
        warn_if_nobody_serves(fleet, &pool).await;
        return Ok(Exit::Success);
    }
    let id = handle.id();
    tokio::select! {
        outcome = wait(fleet, &pool, &mut handle, options.timeout) => conclude(outcome, &plan, options),
        () = waiting::interrupt() => {
            report::unfinished(id, options.output)?;
            output::note(&format!(
                "interrupted: job {id} keeps running, but its outputs will be discarded\nto see how it ends: gpufleet show {id}"
            ));
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

/// Waits for the reply, and warns if no worker serves the pool.
async fn wait(
    fleet: &Fleet,
    pool: &PoolName,
    handle: &mut JobHandle,
    deadline: Duration,
) -> Result<JobResult, JobError> {
    /// A worker answers a small job sooner, and then the check is not worth its cost.
    const ASK_AFTER: Duration = Duration::from_millis(500);
    let spinner = Spinner::new(format!("waiting for job {}", handle.id()));
    let first = deadline.min(ASK_AFTER);
    match handle.wait(first).await {
        Err(JobError::DeadlinePassed { .. }) if deadline > first => {
            warn_if_nobody_serves(fleet, pool).await;
            let rest = spinner.around(handle.wait(deadline - first)).await;
            rest.map_err(|error| match error {
                JobError::DeadlinePassed { job_id, .. } => JobError::DeadlinePassed { job_id, waited: deadline },
                other => other,
            })
        }
        outcome => outcome,
    }
}

async fn warn_if_nobody_serves(fleet: &Fleet, pool: &PoolName) {
    // An error is ignored, because the wait itself will report it.
    if let Ok(PoolDepth { consumers: 0, messages }) = fleet.pool_depth(pool).await {
        let others = match messages {
            0 | 1 => String::new(),
            many => format!(" with {many} messages in all"),
        };
        output::warn(&format!(
            "no worker serves pool {pool} at the moment; the job waits in its queue{others}. To start a worker: gpufleet-worker run --pool {pool}"
        ));
    }
}

fn conclude(outcome: Result<JobResult, JobError>, plan: &Plan, options: &Options) -> Result<Exit, Complaint> {
    match outcome {
        Ok(result) => {
            report::succeeded(&result, &plan.saves, options.output)?;
            Ok(Exit::Success)
        }
        Err(JobError::Failed(failed)) => {
            report::failed(&failed, options.output)?;
            Err(failure::complaint(&failed, plan.source.as_ref()))
        }
        Err(error @ JobError::DeadlinePassed { .. }) => {
            let id = error.job_id();
            report::unfinished(id, options.output)?;
            Err(Complaint::new(Exit::DeadlinePassed, error.to_string()).hint(format!(
                "the job keeps running, but its outputs will be discarded; `gpufleet show {id}` shows how it ends. To get the outputs, submit again with a longer --timeout"
            )))
        }
        Err(error @ JobError::Closed { job_id }) => Err(Complaint::new(Exit::Broker, error.to_string()).hint(format!(
            "the job keeps running, but its outputs will be discarded; `gpufleet show {job_id}` shows how it ends"
        ))),
        Err(error @ JobError::BadReply { .. }) => Err(Complaint::new(Exit::FleetFailed, error.to_string()).hint(
            "check that the worker and this command have the same version and use the same blob store (--blobs)",
        )),
    }
}

fn interrupted_before() -> Complaint {
    Complaint::new(Exit::Interrupted, "interrupted before the broker confirmed the job")
        .hint("the job may still run; if it does, `gpufleet history` lists it")
}

fn refused(error: &SubmitError, plan: &Plan) -> Complaint {
    let told = |exit| Complaint::new(exit, chain(error));
    match error {
        SubmitError::Invalid(problem) => plan::invalid(problem, plan.job.program()),
        SubmitError::TooLarge { problem, .. } => plan::too_large(problem, plan.has_store),
        SubmitError::Blob { source, .. } => {
            Complaint::bad_input(connection::sentence(&chain(error))).hint(connection::blob_hint(source))
        }
        SubmitError::Encode { .. } | SubmitError::AlreadySubmitted { .. } => told(Exit::Internal),
        SubmitError::NoQueue { pool, .. } => told(Exit::Broker).hint(format!(
            "check the pool's name (`gpufleet workers` lists the pools in service), or start a worker: gpufleet-worker run --pool {pool}"
        )),
        SubmitError::Refused { .. } => {
            told(Exit::Broker).hint("check with `gpufleet workers` that workers serve the pool, and submit again once they have caught up")
        }
        SubmitError::Unknown { job_id, .. } => told(Exit::Broker)
            .hint(format!("`gpufleet show {job_id}` shows whether it arrived; if not, submit it again (a job may safely run twice)")),
        SubmitError::Declare(problem) => connection::declare_complaint(problem),
        SubmitError::Publish(_) => connection::publish_complaint(&chain(error)),
    }
}
