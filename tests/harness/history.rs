//! The history checker. It compares the confirmations and outcomes that producers received, every event and reply on
//! the broker, and the final state of the ledger.
//!
//! The rules: no confirmed job is lost. Each job has exactly one final outcome, which is that of one of its attempts
//! and which every reader received. A final outcome never changes and never precedes a start. Every wait ends. An empty
//! history is a violation too, so that a check of nothing does not pass.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    os::unix::process::ExitStatusExt as _,
    sync::Mutex,
    time::Instant,
};

use gpufleet_ledger::{FailureRow, JobDetail, JobRow};
use gpufleet_schema::{AttemptState, Event, JobId, JobState};

use crate::{
    Ground, WAIT,
    poll::{Pauses, poll_until},
};

mod rules;
#[cfg(test)]
mod tests;

/// All records of a scenario's jobs.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The expected number of jobs.
    pub expected: usize,
    pub producers: ProducerRecord,
    /// All events in order of arrival, perhaps with duplicates.
    pub events: Vec<Event>,
    /// Replies to the recorded producers.
    pub replies: Vec<SeenReply>,
    /// The ledger's jobs at the end.
    pub known: Vec<JobDetail>,
    /// Every final outcome that the ledger has shown for a job.
    pub outcomes: BTreeMap<JobId, BTreeSet<Outcome>>,
    /// The workers that were killed.
    pub killed: BTreeSet<String>,
}

/// The producers' records of their jobs.
#[derive(Debug, Clone, Default)]
pub struct ProducerRecord {
    /// The jobs for which `submit` returned.
    pub confirmed: BTreeSet<JobId>,
    pub waits: BTreeMap<JobId, Wait>,
}

/// All waits for one job.
#[derive(Debug, Clone, Default)]
pub struct Wait {
    /// The number of waits that have not ended.
    pub open: u32,
    /// Outcomes that the waits returned.
    pub outcomes: Vec<ReplyOutcome>,
}

/// An outcome of a job that a producer received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplyOutcome {
    pub state: AttemptState,
    pub attempt: u32,
}

/// A reply to a producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenReply {
    pub job_id: JobId,
    pub outcome: ReplyOutcome,
}

/// A final outcome in the ledger.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outcome {
    pub state: JobState,
    pub attempt: Option<u32>,
    pub finished_ms: Option<i64>,
    /// The code and message of a failure.
    pub failure: Option<(String, String)>,
}

/// A violated rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// The history is empty, so the check proves nothing.
    EmptyHistory { what: &'static str },
    /// There are more or fewer jobs than expected.
    JobCount { expected: usize, known: usize },
    /// A confirmed job has no final outcome.
    Lost { job: JobId },
    /// The number of deciding attempts is not one.
    DecidingAttempts { job: JobId, deciding: usize },
    /// The job's row and its deciding attempt differ.
    RowMismatch { job: JobId },
    /// The ledger has an end without an event.
    EndWithoutEvent { job: JobId, attempt: u32 },
    /// An event reported an end that is not in the ledger, neither as the outcome nor as superseded.
    UnrecordedEnd { job: JobId, attempt: u32 },
    /// One worker reported two ends of one attempt.
    TwoEnds { job: JobId, attempt: u32 },
    /// The ledger showed two final outcomes.
    Changed { job: JobId },
    /// An attempt ended before it started, or ran without a start.
    EndBeforeStart { job: JobId, attempt: u32 },
    /// A wait did not end, or ended without an outcome.
    UnfinishedWait { job: JobId },
    /// A producer received two outcomes of one job.
    TwoOutcomes { job: JobId },
    /// A reply or a wait differs from the ledger.
    ReplyMismatch { job: JobId },
    /// The producer received no reply.
    NoReply { job: JobId },
    /// An attempt on the emulated device is not marked as emulated.
    NotMarkedEmulated { job: JobId, attempt: u32 },
}

/// The final outcomes that queries of the ledger showed.
#[derive(Debug, Default)]
pub(crate) struct Sightings(Mutex<BTreeMap<JobId, BTreeSet<Outcome>>>);

impl History {
    /// Returns all violations.
    pub fn violations(&self) -> Vec<Violation> {
        rules::violations(self)
    }

    /// Panics if there are violations, and lists them.
    pub fn assert_holds(&self) {
        let violations = self.violations();
        let shown: Vec<_> = violations.iter().map(ToString::to_string).collect();
        assert!(violations.is_empty(), "the history does not hold:\n{}", shown.join("\n"));
    }
}

impl Outcome {
    /// Returns the final outcome of a job; `None` if it has none yet.
    pub fn of(job: &JobRow) -> Option<Self> {
        let failure = |failure: &FailureRow| (failure.code.clone(), failure.message.clone());
        job.state.is_final().then(|| Self {
            state: job.state,
            attempt: job.attempt,
            finished_ms: job.finished_at.map(|at| at.timestamp_millis()),
            failure: job.failure.as_ref().map(failure),
        })
    }
}

impl Sightings {
    pub(crate) fn saw(&self, job: &JobRow) {
        if let Some(outcome) = Outcome::of(job) {
            self.0.lock().unwrap().entry(job.job_id).or_default().insert(outcome);
        }
    }

    fn all(&self) -> BTreeMap<JobId, BTreeSet<Outcome>> {
        self.0.lock().unwrap().clone()
    }
}

impl Ground {
    /// Waits until exactly this many jobs are known and final, and checks their history. A later call also checks that
    /// these outcomes have not changed.
    pub async fn check_history(&self, jobs: usize) {
        self.history(jobs).await.assert_holds();
    }

    /// Returns the history once this many jobs are final, or more are known.
    pub async fn history(&self, jobs: usize) -> History {
        poll_until(&format!("{jobs} jobs in the ledger, all final"), async || {
            // The database may be restarting.
            let Ok(known) = self.all_jobs().await else { return false };
            known.len() >= jobs && known.iter().all(|job| job.state.is_final())
        })
        .await;
        // The sources are read one after the other, so they may disagree for a moment. A violation that persists is
        // real.
        let deadline = Instant::now() + WAIT;
        let mut pauses = Pauses::new();
        loop {
            let history = self.history_now(jobs).await;
            if history.violations().is_empty() {
                return history;
            }
            if Instant::now() > deadline {
                println!("copies that the broker still has: {}", self.unread_copies().await);
                return history;
            }
            pauses.next().await;
        }
    }

    async fn history_now(&self, jobs: usize) -> History {
        let known = self.all_details().await;
        let (events, replies) = self.witness.seen();
        History {
            expected: jobs,
            producers: self.records.all(),
            events,
            replies,
            known,
            outcomes: self.sightings.all(),
            killed: self.killed_workers(),
        }
    }

    fn killed_workers(&self) -> BTreeSet<String> {
        let workers = self.fleet().workers().into_iter();
        let killed = workers.filter(|worker| {
            worker.process().exit_status().is_some_and(|status| status.signal() == Some(libc::SIGKILL))
        });
        killed.map(|worker| worker.name().to_owned()).collect()
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyHistory { what } => write!(f, "the history has no {what}, so it proves nothing"),
            Self::JobCount { expected, known } => write!(f, "{expected} jobs were expected, the ledger has {known}"),
            Self::Lost { job } => write!(f, "{job} was confirmed and has no final outcome"),
            Self::DecidingAttempts { job, deciding } => write!(f, "{job} has {deciding} attempts that decide it"),
            Self::RowMismatch { job } => write!(f, "{job} differs from the attempt that decided it"),
            Self::EndWithoutEvent { job, attempt } => {
                write!(f, "{job}: no event reported the end of attempt {attempt}")
            }
            Self::UnrecordedEnd { job, attempt } => {
                write!(f, "{job}: the ledger lacks the end of attempt {attempt}")
            }
            Self::TwoEnds { job, attempt } => write!(f, "{job}: one worker reported two ends of attempt {attempt}"),
            Self::Changed { job } => write!(f, "the final outcome of {job} changed"),
            Self::EndBeforeStart { job, attempt } => write!(f, "{job}: attempt {attempt} ended before it started"),
            Self::UnfinishedWait { job } => write!(f, "a wait for {job} has no outcome"),
            Self::TwoOutcomes { job } => write!(f, "the producer received two outcomes of {job}"),
            Self::ReplyMismatch { job } => write!(f, "{job}: the reply differs from the ledger"),
            Self::NoReply { job } => write!(f, "{job} has no reply"),
            Self::NotMarkedEmulated { job, attempt } => {
                write!(f, "{job}: attempt {attempt} is not marked as emulated")
            }
        }
    }
}
