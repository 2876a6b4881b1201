//! `gpufleet logs --follow`: prints what the kernels of a job print while it runs, wherever the job was submitted.
//!
//! The text comes from the broker, where messages may be lost. Only the ledger says that the job has ended, and what it printed.

use std::time::Duration;

use gpufleet::schema::{JobId, JobState};
use gpufleet_ledger::{JobDetail, JobMatch, JobRow};
use tokio::time::sleep;

use super::Options;
use crate::{
    complaint::Complaint,
    exit::Exit,
    lookup,
    options::Format,
    outage::Patient,
    output, printed,
    progress::{ProgressDisplay, Subscription},
    source::Source,
    wait, waiting,
};

/// The pause before the ledger is asked again whether the job has ended.
const POLL: Duration = Duration::from_secs(1);

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    let told = format!("waiting for job {}", options.id);
    let mut display = ProgressDisplay::new(told, &options.progress, Format::Table);
    let following = display.spinner().around(ended(options, &mut display));
    let detail = waiting::unless_interrupted(following, "interrupted; the job keeps running").await?;
    display.finish(detail.job.job_id, detail.job.attempt, &mut printed::by_deciding_attempt(&detail))?;
    let logs = super::logs(&detail, None)?;
    if let Some(note) = logs.note.filter(|_| logs.text.is_empty()) {
        output::warn(&note);
    }
    if detail.job.state != JobState::Succeeded {
        output::note(wait::line(&detail.job).trim_end());
    }
    Ok(wait::exit_of(&detail.job))
}

/// The job, once it has ended.
async fn ended(options: &Options, display: &mut ProgressDisplay) -> Result<Box<JobDetail>, Complaint> {
    let spinner = display.spinner();
    let mut patient = Patient::new(&spinner, None, "the job keeps running");
    let source = &patient.ask(async || Source::open(&options.source).await).await?;
    let detail = patient.ask(async || lookup::in_source(source, &options.id).await).await?;
    let JobRow { job_id, state, .. } = detail.job;
    if state == JobState::Queued && !options.progress.quiet {
        let pool = detail.job.pool.map(|pool| format!(" of pool {pool}")).unwrap_or_default();
        patient.aside(|| output::note(&format!("job {job_id} waits in the queue{pool}")));
    }
    let pool = async || recorded(source, job_id).await.ok()?.job.pool;
    let detail = match state.is_final() {
        true => recorded(source, job_id).await?,
        false => {
            let work = until_ended(source, job_id, &mut patient);
            Box::pin(display.during(work, async || Subscription::connect(&options.broker, job_id, &pool).await)).await?
        }
    };
    source.close().await;
    Ok(detail)
}

async fn until_ended(source: &Source, job_id: JobId, patient: &mut Patient<'_>) -> Result<Box<JobDetail>, Complaint> {
    loop {
        let states = patient.ask(async || source.job_states(&[job_id]).await).await?;
        match states.get(&job_id) {
            Some(state) if state.is_final() => return patient.ask(async || recorded(source, job_id).await).await,
            Some(_) => sleep(POLL).await,
            None => return Err(lookup::missing(&job_id.to_string())),
        }
    }
}

async fn recorded(source: &Source, job_id: JobId) -> Result<Box<JobDetail>, Complaint> {
    match source.find_job(&job_id.to_string()).await? {
        JobMatch::One(detail) => Ok(detail),
        JobMatch::None | JobMatch::Many(_) => Err(lookup::missing(&job_id.to_string())),
    }
}
