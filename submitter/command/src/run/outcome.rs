//! Attends to an open session while the command runs, and learns how it ended.

use std::time::Duration;

use gpufleet::{
    FailedJob, JobError,
    schema::{FailureCode, JobId, RanOn, SessionUse},
    session::{LeaseEnd, LeaseEvent, SessionHandle, Standing},
};
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{ending::Cut, leases::Open, lines::Lines, program::ProgramEnd};
use crate::{
    exit::Exit,
    recent::{self, Seen},
};

/// The time for the job's reply after the end of its session.
const REPLY_WITHIN: Duration = Duration::from_secs(5);

/// A session that has ended.
#[derive(Debug)]
pub struct SessionEnd {
    pub job_id: JobId,
    pub ran_on: RanOn,
    pub memory_bytes: u64,
    /// The session ended before the command did.
    pub is_early: bool,
    pub end: LeaseEnd,
    pub outcome: Outcome,
}

/// The outcome of a session's job.
#[derive(Debug)]
pub enum Outcome {
    Succeeded,
    Failed(Box<FailedJob>),
    /// The reply did not come in time. The ledger has the outcome later.
    Unknown,
}

/// Reports events of the session until the command has ended, and then waits for the session's own end. `hurry` ends the wait for its
/// outcome.
pub async fn attend(
    mut session: Open,
    mut ended: watch::Receiver<Option<ProgramEnd>>,
    hurry: CancellationToken,
    lines: Lines,
) -> SessionEnd {
    let mut early = None;
    let mut has_outcome = false;
    let program = loop {
        tokio::select! {
            event = session.lease.next(), if early.is_none() => early = reported(event, lines),
            offer = session.handle.next_offer(), if !has_outcome => match offer {
                // The broker has lost the worker of this attempt. Meanwhile events of the session go on.
                Some(offer) => {
                    let standing = Standing::of(early.as_ref(), None, None);
                    tokio::spawn(async move { standing.report(&offer).await });
                }
                None => has_outcome = true,
            },
            program = end_of_command(&mut ended) => break program,
        }
    };
    let is_early = early.is_some();
    let has_failed = program.is_some_and(ProgramEnd::is_own_failure);
    let (exit_code, signal) = program.map_or((None, None), |end| (end.exit_code(), end.signal()));
    let end = match early {
        Some(end) => end,
        None => session.lease.finish(exit_code, signal).await.unwrap_or_else(unexplained),
    };
    // A command whose calls fail because the worker is lost may end before its loss is noticed here.
    let is_early = is_early || has_failed && matches!(end, LeaseEnd::Lost { .. });
    let outcome = outcome(&mut session.handle, Standing::of(Some(&end), exit_code, signal));
    let outcome = hurry.run_until_cancelled(outcome).await.unwrap_or(Outcome::Unknown);
    let Open { offer, .. } = session;
    SessionEnd { job_id: offer.job_id, ran_on: offer.ran_on, memory_bytes: offer.memory_bytes, is_early, end, outcome }
}

/// Waits until the command has ended. `None` if that will never be known. Cancelling the future loses nothing.
async fn end_of_command(ended: &mut watch::Receiver<Option<ProgramEnd>>) -> Option<ProgramEnd> {
    ended.wait_for(Option::is_some).await.ok().and_then(|program| *program)
}

/// Prints an event. Returns the end of the session, if that is the event.
fn reported(event: Option<LeaseEvent>, lines: Lines) -> Option<LeaseEnd> {
    match event {
        Some(LeaseEvent::Warning { reason, within }) => {
            lines.warn(&format!("the session ends in {} s: {reason}", within.as_secs()));
            None
        }
        Some(LeaseEvent::Ended(end)) => {
            lines.warn(&match &end {
                LeaseEnd::Closed { reason: Some(reason), .. } => format!("the session has ended: {reason}"),
                LeaseEnd::Closed { reason: None, .. } => "the session has ended".to_owned(),
                LeaseEnd::Lost { reason } => format!("the session is lost: {reason}"),
            });
            Some(end)
        }
        None => Some(unexplained()),
    }
}

fn unexplained() -> LeaseEnd {
    LeaseEnd::Lost { reason: "the connection to the worker has ended".to_owned() }
}

async fn outcome(handle: &mut SessionHandle, standing: Standing) -> Outcome {
    let job_id = handle.id();
    let replied = async {
        while let Some(offer) = handle.next_offer().await {
            _ = standing.report(&offer).await;
        }
        handle.wait(REPLY_WITHIN).await
    };
    let outcome = match timeout(REPLY_WITHIN, replied).await {
        Ok(Ok(_)) => Outcome::Succeeded,
        Ok(Err(JobError::Failed(failed))) => Outcome::Failed(failed),
        Ok(Err(_)) | Err(_) => return Outcome::Unknown,
    };
    recent::note(job_id, Seen::Ended);
    outcome
}

impl SessionEnd {
    pub fn used(&self) -> SessionUse {
        match &self.end {
            LeaseEnd::Closed { used, .. } => used.clone(),
            LeaseEnd::Lost { .. } => SessionUse::default(),
        }
    }

    /// Why the session ended, other than by the end of the command.
    pub fn reason(&self) -> Option<&str> {
        let of_lease = match &self.end {
            LeaseEnd::Closed { reason, .. } => reason.as_deref(),
            LeaseEnd::Lost { reason } => Some(reason.as_str()),
        };
        match &self.outcome {
            Outcome::Failed(failed) => failed.failure.as_ref().map(|failure| failure.message.as_str()).or(of_lease),
            Outcome::Succeeded | Outcome::Unknown => of_lease,
        }
    }

    /// The exit code and the reason, if the fleet ended the session before the command was done.
    fn cut(&self) -> Option<Cut> {
        let has_own_reason = matches!(&self.end, LeaseEnd::Closed { reason: Some(_), .. });
        if !self.is_early && !has_own_reason {
            return None;
        }
        let exit = match &self.outcome {
            Outcome::Failed(failed) => match Exit::of_outcome(failed.state, failed.failure.as_ref()) {
                Exit::JobFailed if !is_client_lost(failed) => return None,
                Exit::JobStopped => Exit::JobStopped,
                _ => Exit::FleetFailed,
            },
            Outcome::Succeeded | Outcome::Unknown => Exit::FleetFailed,
        };
        Some(Cut { exit, reason: self.reason().unwrap_or("without a reason").to_owned() })
    }
}

fn is_client_lost(failed: &FailedJob) -> bool {
    failed.failure.as_ref().is_some_and(|failure| failure.code == FailureCode::ClientLost)
}

/// The first session that the fleet ended before the command was done.
pub fn cut(ends: &[SessionEnd]) -> Option<Cut> {
    ends.iter().find_map(SessionEnd::cut)
}

/// What all sessions did together.
pub fn sum(ends: &[SessionEnd]) -> SessionUse {
    ends.iter().map(SessionEnd::used).fold(SessionUse::default(), |sum, used| SessionUse {
        processes: sum.processes.saturating_add(used.processes),
        calls: sum.calls.saturating_add(used.calls),
        waits: sum.waits.saturating_add(used.waits),
        sent_bytes: sum.sent_bytes.saturating_add(used.sent_bytes),
        received_bytes: sum.received_bytes.saturating_add(used.received_bytes),
        busy_us: sum.busy_us.saturating_add(used.busy_us),
        memory_bytes: sum.memory_bytes.saturating_add(used.memory_bytes),
        memory_bytes_peak: sum.memory_bytes_peak.saturating_add(used.memory_bytes_peak),
        exit_code: used.exit_code,
        signal: used.signal,
    })
}
