//! Explains why a job waits, from the ledger and, if the caller asked it, the broker. This is plain data.

use chrono::{DateTime, TimeDelta, Utc};
use gpufleet_schema::{JobId, JobState, size::Size};
use serde::{Deserialize, Serialize};

use crate::{DeviceRow, JobDetail, Pool, WorkerRow, age};

mod host_program;
mod session;

/// How far back device time counts when deciding whether a pool is over its share. The statistics have whole hours.
pub const SHARE_WINDOW: TimeDelta = TimeDelta::hours(1);
/// How far a pool may exceed its share, in percentage points, before it counts as over it. Shares are measurements and vary a little.
const SHARE_TOLERANCE_PERCENT: f64 = 5.0;
/// How late the events of a job may arrive.
const EVENTS_ON_THEIR_WAY: TimeDelta = TimeDelta::seconds(5);

/// The facts about a job that waits.
#[derive(Debug)]
pub struct Situation<'a> {
    pub detail: &'a JobDetail,
    /// The broker's counts for the task queues of the job's pool, or for the queue of its sessions or host programs if the job is one;
    /// none if the broker was not asked.
    pub depth: Option<Depth>,
    /// All workers. Those that do not serve the job's pool now are ignored.
    pub workers: &'a [WorkerRow],
    pub pools: &'a [Pool],
    pub now: DateTime<Utc>,
}

/// The broker's counts for queues of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth {
    /// The number of messages. One message may have many jobs.
    pub messages: u64,
    pub consumers: u32,
}

/// Why a job waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct Explanation {
    #[cfg_attr(feature = "serve", schema(value_type = uuid::Uuid))]
    pub job_id: JobId,
    pub state: JobState,
    /// The most likely one first. Empty for a job that does not wait.
    pub reasons: Vec<Reason>,
}

/// A reason why a job waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "serve", derive(utoipa::ToSchema))]
pub struct Reason {
    /// `no_consumer`, `over_share`, `memory`, `jobs_ahead`, `busy_worker`, `retry_due`, `ledger_and_broker_disagree`, `ask_broker`, or, for a
    /// session, `no_consumer`, `no_sessions`, `lease_too_large`, `sessions_open`, `memory`, `lease`, or, for a host program, `no_consumer`,
    /// `no_programs`, `no_environment`, `retry_due`, `devices_in_use`, `device`. Later releases may add some.
    pub reason: String,
    pub text: String,
}

impl Situation<'_> {
    /// Explains why the job waits. Only a queued job has reasons.
    pub fn explain(&self) -> Explanation {
        let job = &self.detail.job;
        let waits = job.state == JobState::Queued && job.pool.is_some();
        let reasons = match waits {
            true if job.is_session() => self.session_reasons(),
            true if job.is_host_program() => self.host_program_reasons(),
            true => self.reasons(),
            false => Vec::new(),
        };
        Explanation { job_id: job.job_id, state: job.state, reasons }
    }

    /// Collects the reasons, most fundamental first: a reason has no effect until the reasons above it are gone.
    fn reasons(&self) -> Vec<Reason> {
        let reasons = [
            ("no_consumer", self.no_consumer()),
            ("over_share", self.over_share()),
            ("memory", self.memory()),
            ("jobs_ahead", self.jobs_ahead()),
            ("busy_worker", self.busy_worker()),
            ("retry_due", self.retry_due()),
        ];
        let mut found: Vec<Reason> =
            reasons.into_iter().filter_map(|(reason, text)| Some(Reason::new(reason, text?))).collect();
        if found.is_empty() {
            found.push(match self.depth {
                Some(_) => Reason::new("ledger_and_broker_disagree", self.disagreement()),
                None => Reason::new("ask_broker", self.unknown()),
            });
        }
        found
    }

    /// Returns the workers that serve the pool and send heartbeats.
    fn workers(&self) -> impl Iterator<Item = &WorkerRow> {
        let serves = |worker: &&WorkerRow| {
            !worker.has_left && !worker.is_silent && worker.pools.iter().any(|of| of == self.pool())
        };
        self.workers.iter().filter(serves)
    }

    fn pool(&self) -> &str {
        self.detail.job.pool.as_deref().unwrap_or_default()
    }

    fn retry_at(&self) -> Option<DateTime<Utc>> {
        self.detail.attempts.last().and_then(|attempt| attempt.retry_at).filter(|at| *at > self.now)
    }

    fn no_consumer(&self) -> Option<String> {
        let pool = self.pool();
        let wait = match self.depth {
            _ if self.is_served() => return None,
            Some(depth) => format!(", in which {}", messages_wait(depth.messages)),
            None => String::new(),
        };
        Some(format!("no worker serves pool {pool}{wait}; to start one: gpufleet-worker run --pool {pool}"))
    }

    /// Returns whether a worker serves the pool, according to the broker or else to the heartbeats.
    fn is_served(&self) -> bool {
        self.depth.map_or_else(|| self.workers().next().is_some(), |depth| depth.consumers > 0)
    }

    /// Returns whether the job waits in a queue of its pool or in a worker, and not for its retry.
    fn is_in_line(&self) -> bool {
        self.retry_at().is_none() && self.is_served()
    }

    fn over_share(&self) -> Option<String> {
        let mine = self.pools.iter().find(|pool| pool.pool == self.pool())?;
        let (due, got) = (mine.due_percent?, mine.got_percent?);
        let is_shared =
            |other: &&Pool| other.pool != mine.pool && other.jobs_running > 0 && self.shares_a_worker(&other.pool);
        let rivals: Vec<&str> = self.pools.iter().filter(is_shared).map(|pool| pool.pool.as_str()).collect();
        let is_over = self.is_in_line() && !rivals.is_empty() && got > due + SHARE_TOLERANCE_PERCENT;
        is_over.then(|| {
            format!(
                "pool {} is over its share: it got {got:.0} % of the device time since the last full hour and is due {due:.0} %; {} goes first",
                mine.pool,
                rivals.join(", ")
            )
        })
    }

    fn shares_a_worker(&self, pool: &str) -> bool {
        self.workers().any(|worker| worker.pools.iter().any(|of| of == pool))
    }

    /// Explains that no device has enough free memory. The ledger does not know how much memory a job needs, but it is at least that of its
    /// inputs.
    fn memory(&self) -> Option<String> {
        let needed = self.detail.job.input_bytes.filter(|_| self.is_in_line())?;
        let most = self.memory_free()?;
        (needed > most).then(|| {
            format!(
                "its inputs alone need {} of device memory; running jobs leave at most {} on a device of pool {}",
                Size(needed),
                Size(most),
                self.pool()
            )
        })
    }

    /// Returns the most memory that running jobs leave on a device of the pool.
    fn memory_free(&self) -> Option<u64> {
        let devices =
            self.workers().flat_map(|worker| &worker.devices).filter(|device| device.out_of_service.is_none());
        devices.map(memory_unused).max()
    }

    fn jobs_ahead(&self) -> Option<String> {
        let messages = self.depth?.messages;
        (self.is_in_line() && messages > 0).then(|| {
            format!(
                "{} in pool {}, perhaps with this job among them; its workers ({}) run {} now (an estimate: jobs of a higher priority go first, and a message may have many jobs)",
                messages_wait(messages),
                self.pool(),
                self.workers().count(),
                match self.running() {
                    1 => "1 job".to_owned(),
                    many => format!("{many} jobs"),
                }
            )
        })
    }

    fn running(&self) -> u32 {
        self.workers().map(|worker| worker.jobs_running).sum()
    }

    /// Explains that a worker has probably prefetched the job.
    fn busy_worker(&self) -> Option<String> {
        let running = self.running();
        let pool = self.pool();
        let is_taken = self.depth.map(|depth| depth.messages == 0);
        (self.is_in_line() && is_taken != Some(false) && running > 0).then(|| match is_taken {
            None => format!("the workers of pool {pool} are busy; it runs when a running job has ended (running: {running})"),
            _ => format!(
                "a worker of pool {pool} has probably taken it, and runs it when a running job has ended (running: {running})"
            ),
        })
    }

    fn retry_due(&self) -> Option<String> {
        let at = self.retry_at()?;
        let failure = self.detail.attempts.last().and_then(|attempt| attempt.failure.as_ref());
        let reason = failure.map(|failure| format!(": {}", failure.message)).unwrap_or_default();
        Some(format!(
            "an attempt was lost{reason}; the retry is due in {}, at {}",
            age(at - self.now),
            at.format("%F %T UTC")
        ))
    }

    fn disagreement(&self) -> String {
        if let Some(text) = self.just_submitted() {
            return text;
        }
        format!(
            "the ledger and the broker disagree: the ledger has the job as queued, but no message waits in pool {} and its workers are idle; \
             the recorder may be behind, the message may be dead-lettered (`gpufleet dead list`), wait for a device class, or be gone",
            self.pool()
        )
    }

    fn unknown(&self) -> String {
        let id = self.detail.job.job_id;
        self.just_submitted()
            .unwrap_or_else(|| format!("the ledger names no reason; `gpufleet why {id}` asks the broker too"))
    }

    fn just_submitted(&self) -> Option<String> {
        let is_new = self.now - self.detail.job.created_at < EVENTS_ON_THEIR_WAY;
        is_new.then(|| "nothing keeps it: it was submitted a moment ago, and its events may be on their way".to_owned())
    }
}

impl Reason {
    fn new(reason: &str, text: String) -> Self {
        Self { reason: reason.to_owned(), text }
    }
}

/// Returns the memory of a device that neither running jobs declared nor sessions take.
fn memory_unused(device: &DeviceRow) -> u64 {
    let declared = device.pools.iter().fold(0_u64, |sum, pool| sum.saturating_add(pool.memory_bytes));
    device.memory_bytes.saturating_sub(declared)
}

fn messages_wait(messages: u64) -> String {
    match messages {
        1 => "1 message waits".to_owned(),
        many => format!("{many} messages wait"),
    }
}
