//! Requests sessions, and waits until workers have opened all of them.

use std::time::Duration;

use futures::{StreamExt as _, future::select_all, stream::FuturesUnordered};
use gpufleet::{
    Fleet, Job, JobError, SubmitError,
    schema::{JobId, PoolName, Selection, SessionOffer},
    session::{Lease, LeaseEnd, LeaseEvent, ReachError, SessionHandle},
};
use gpufleet_transport::PublishError;
use tokio::time::{sleep, timeout};

use super::{
    Options,
    lines::{self, Lines},
    signals::Signals,
};
use crate::{
    complaint::{Complaint, chain},
    connection,
    exit::Exit,
    recent::{self, Seen},
    submit,
};

/// A shorter wait for a worker is not worth a line.
const PATIENCE: Duration = Duration::from_secs(1);
/// The reply of a job that has ended is there already.
const REPLY_WITHIN: Duration = Duration::from_secs(5);
/// A worker ends a job at its queue limit. After this time beyond the limit, no worker serves the pool.
const LIMIT_PASSED: Duration = Duration::from_secs(10);
/// A confirmed cancellation is on disk, so this bounds an outage of the broker.
const CANCELLED_WITHIN: Duration = Duration::from_secs(10);

/// An open session.
#[derive(Debug)]
pub struct Open {
    pub handle: SessionHandle,
    pub offer: SessionOffer,
    pub lease: Lease,
}

/// Why a session is not open.
#[derive(Debug)]
struct NotOpen {
    complaint: Complaint,
    /// The job was not submitted, or has an outcome.
    ended: Option<JobId>,
}

/// Opens a session for each of the jobs. After a failure or an interrupt, the jobs are cancelled.
pub async fn take(
    fleet: &Fleet,
    jobs: Vec<Job>,
    options: &Options,
    lines: Lines,
    signals: &mut Signals,
) -> Result<Vec<Open>, Complaint> {
    let mut ids: Vec<JobId> = jobs.iter().map(Job::id).collect();
    let pool = options.pool();
    let opening = all(jobs.into_iter().map(|job| open(fleet, job, &pool, lines)).collect());
    let failed = tokio::select! {
        opened = opening => match opened {
            Ok(sessions) => return Ok(sessions),
            Err(failed) => failed,
        },
        _ = signals.next() => NotOpen {
            complaint: Complaint::new(Exit::Interrupted, "interrupted while waiting for a session"),
            ended: None,
        },
        limit = queue_limit_passed(options) => NotOpen { complaint: unserved(limit, &pool), ended: None },
    };
    ids.retain(|id| Some(*id) != failed.ended);
    if !ids.is_empty() {
        tokio::select! {
            () = cancel(fleet, ids, lines) => {}
            // A second Ctrl-C ends the command at once.
            _ = signals.next() => {}
        }
    }
    Err(failed.complaint)
}

/// Waits until all sessions are open. The time limits of those that are open run already, and one that ends is never given to the command.
async fn all(mut opening: FuturesUnordered<impl Future<Output = Result<Open, NotOpen>>>) -> Result<Vec<Open>, NotOpen> {
    let mut opened = Vec::new();
    loop {
        tokio::select! {
            next = opening.next() => match next {
                Some(open) => opened.push(open?),
                None => return Ok(opened),
            },
            (job_id, end) = first_end(&mut opened), if !opened.is_empty() => {
                return Err(NotOpen { complaint: ended_early(end), ended: Some(job_id) });
            }
        }
    }
}

/// Waits for the first end of these sessions.
async fn first_end(opened: &mut [Open]) -> (JobId, LeaseEnd) {
    loop {
        let next = opened.iter_mut().map(|open| Box::pin(async { (open.handle.id(), open.lease.next().await) }));
        match select_all(next).await.0 {
            (job_id, Some(LeaseEvent::Ended(end))) => return (job_id, end),
            (_, Some(LeaseEvent::Warning { .. })) => {}
            (job_id, None) => return (job_id, LeaseEnd::Lost { reason: "its connection has ended".to_owned() }),
        }
    }
}

fn ended_early(end: LeaseEnd) -> Complaint {
    let reason = match end {
        LeaseEnd::Closed { reason, .. } => reason.unwrap_or_else(|| "without a reason".to_owned()),
        LeaseEnd::Lost { reason } => reason,
    };
    Complaint::new(Exit::JobStopped, format!("a session ended before all sessions were open: {reason}"))
        .hint("ask for fewer with --sessions, or for less memory each with --memory")
}

/// Waits until a worker would have ended the job. Returns the limit.
async fn queue_limit_passed(options: &Options) -> Duration {
    match options.queue_limit {
        Some(limit) => {
            sleep(limit.saturating_add(LIMIT_PASSED)).await;
            limit
        }
        None => std::future::pending().await,
    }
}

fn unserved(limit: Duration, pool: &PoolName) -> Complaint {
    let limit = humantime::format_duration(limit);
    Complaint::new(Exit::JobStopped, format!("no worker of pool {pool} answered within the queue limit of {limit}"))
        .hint(format!(
            "check with `gpufleet workers` that a worker serves the pool with sessions: --pool {pool}:sessions=1"
        ))
}

async fn open(fleet: &Fleet, job: Job, pool: &PoolName, lines: Lines) -> Result<Open, NotOpen> {
    let job_id = job.id();
    let mut handle = confirmed(fleet, job, pool, lines).await?;
    recent::note(job_id, Seen::Submitted);
    let offer = match timeout(PATIENCE, handle.next_offer()).await {
        Ok(offer) => offer,
        Err(_) => {
            let why = lines::short(job_id);
            lines.info(&format!("waiting in pool {pool}; \"gpufleet why {why}\" shows why"));
            handle.next_offer().await
        }
    };
    let Some(offer) = offer else {
        recent::note(job_id, Seen::Ended);
        let complaint = without_offer(handle.wait(REPLY_WITHIN).await.err(), job_id);
        return Err(NotOpen { complaint, ended: Some(job_id) });
    };
    match Lease::open(&offer).await {
        Ok(lease) => {
            lines.info(&lines::opened(&offer, lease.round_trip()));
            Ok(Open { handle, offer, lease })
        }
        Err(error) => Err(NotOpen { complaint: unreached(&error), ended: None }),
    }
}

/// Waits for the broker's confirm, and warns about what delays it.
async fn confirmed(fleet: &Fleet, job: Job, pool: &PoolName, lines: Lines) -> Result<SessionHandle, NotOpen> {
    let (job_id, program) = (job.id(), job.program().clone());
    let mut submitting = std::pin::pin!(fleet.open_session(job));
    let submitted = tokio::select! {
        submitted = &mut submitting => submitted,
        trouble = fleet.held_up() => {
            lines.warn(&format!("{trouble}; the session is requested as soon as the broker accepts it"));
            submitting.await
        }
    };
    submitted.map_err(|error| {
        let ended = (!matches!(error, SubmitError::Unknown { .. })).then_some(job_id);
        let complaint = submit::refused(&error, &program, false);
        let complaint = match error {
            SubmitError::Publish(PublishError::Forbidden { .. }) => complaint.hint(format!(
                "your broker user may not open sessions in pool {pool}; an administrator can allow it: \
                 gpufleet permissions --role producer --pool {pool} --sessions"
            )),
            _ => complaint,
        };
        NotOpen { complaint, ended }
    })
}

/// The complaint about a job that ended before a worker offered a session.
fn without_offer(outcome: Option<JobError>, job_id: JobId) -> Complaint {
    match outcome {
        Some(JobError::Failed(failed)) => submit::failed(&failed, None),
        Some(error) => Complaint::new(Exit::Broker, error.to_string())
            .hint(format!("`gpufleet show {job_id}` shows what became of the job")),
        None => Complaint::new(Exit::FleetFailed, format!("job {job_id} ended without a session"))
            .hint("install the same version of the worker and this command"),
    }
}

fn unreached(error: &ReachError) -> Complaint {
    Complaint::new(Exit::FleetFailed, chain(error))
}

async fn cancel(fleet: &Fleet, jobs: Vec<JobId>, lines: Lines) {
    let ids: Vec<String> = jobs.iter().map(JobId::to_string).collect();
    let cancelling = fleet.cancel(Selection { jobs, ..Selection::default() }, connection::caller());
    let problem = match timeout(CANCELLED_WITHIN, cancelling).await {
        Ok(Ok(_)) => return lines.info(&format!("requested cancellation of {}", ids.join(" and "))),
        Ok(Err(error)) => chain(&error),
        Err(_) => "the broker did not answer".to_owned(),
    };
    lines.warn(&format!("failed to cancel the job: {problem}; try it again: gpufleet cancel {}", ids.join(" ")));
}
