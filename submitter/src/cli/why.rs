//! `gpufleet why`: the reason why a job waits.

use chrono::{DateTime, Utc};
use clap::Args;
use gpufleet::{
    Fleet, PoolDepth,
    schema::{JobState, PoolName},
};
use gpufleet_ledger::{JobDetail, WorkerFilter, WorkerRow};
use serde::Serialize;

use super::{
    complaint::Complaint,
    connection,
    exit::Exit,
    history, json, lookup,
    options::{BrokerOptions, Format, LedgerOptions},
    output,
    pools::{self, Pool},
    quantity,
    waiting::Spinner,
};

/// Explain why a job waits
///
/// The first line is the most likely reason. It comes from the ledger, the workers' heartbeats and the broker, which may each be some
/// seconds old.
#[derive(Debug, Args)]
#[command(after_long_help = json::WHY)]
pub struct Options {
    /// Id of the job; the beginning is enough if it is unique
    id: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    broker: BrokerOptions,
    #[command(flatten)]
    ledger: LedgerOptions,
}

/// Device time of this long ago decides whether a pool is over its share. The statistics have whole hours.
const SHARE_WINDOW: chrono::TimeDelta = chrono::TimeDelta::hours(1);
/// Shares are measured, so a pool that has a little more than its share is not over it.
const SHARE_TOLERANCE_PERCENT: f64 = 5.0;
/// So long, the events of a job may be on their way.
const EVENTS_ON_THEIR_WAY: chrono::TimeDelta = chrono::TimeDelta::seconds(5);

/// What is known about a job that waits.
struct Situation<'a> {
    detail: &'a JobDetail,
    depth: PoolDepth,
    /// The workers that serve its pool and send heartbeats.
    workers: Vec<&'a WorkerRow>,
    pools: &'a [Pool],
    now: DateTime<Utc>,
}

/// A reason why a job waits.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Reason {
    /// One of [`json::WHY`].
    reason: &'static str,
    text: String,
}

#[derive(Debug, Serialize)]
struct Explanation {
    job_id: String,
    state: &'static str,
    /// The most likely one first. Empty for a job that does not wait.
    reasons: Vec<Reason>,
}

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    let (explanation, text) = Spinner::new("looking for the reason").around(explain(options)).await?;
    match options.output {
        Format::Table => output::emit(&text)?,
        Format::Json => output::emit_json(&explanation)?,
    }
    Ok(Exit::Success)
}

async fn explain(options: &Options) -> Result<(Explanation, String), Complaint> {
    let ledger = connection::ledger(&options.ledger).await?;
    let detail = lookup::in_ledger(&ledger, &options.id).await?;
    let job = &detail.job;
    let pool = job.pool.as_deref().and_then(|pool| pool.parse::<PoolName>().ok());
    let (JobState::Queued, Some(pool)) = (job.state, pool) else {
        ledger.close().await;
        return Ok(explanation(&detail, Vec::new()));
    };
    let now = Utc::now();
    let asked = async {
        Ok((ledger.workers(&WorkerFilter::default()).await?, pools::read(&ledger, now - SHARE_WINDOW).await?))
    };
    let (workers, pools) = asked.await.map_err(|error| connection::ledger_complaint(&error))?;
    ledger.close().await;
    let fleet = connection::fleet(&options.broker, Fleet::builder()).await?;
    let depth = pools::depth(&fleet, &pool).await?;
    let _closed_in_time = tokio::time::timeout(connection::CLOSE_DEADLINE, fleet.close()).await;
    let serves = |worker: &&WorkerRow| {
        !worker.has_left && !worker.is_silent && worker.pools.iter().any(|of| of == pool.as_str())
    };
    let workers = workers.iter().filter(serves).collect();
    let reasons = Situation { detail: &detail, depth, workers, pools: &pools, now }.reasons();
    Ok(explanation(&detail, reasons))
}

fn explanation(detail: &JobDetail, reasons: Vec<Reason>) -> (Explanation, String) {
    let job = &detail.job;
    let text = match reasons.as_slice() {
        [] => does_not_wait(detail),
        reasons => reasons.iter().map(|reason| format!("{}\n", reason.text)).collect(),
    };
    (Explanation { job_id: job.job_id.to_string(), state: job.state.name(), reasons }, text)
}

fn does_not_wait(detail: &JobDetail) -> String {
    let job = &detail.job;
    let id = job.job_id;
    match job.state {
        JobState::Queued => format!("job {id} waits, but no event has named its pool yet\n"),
        JobState::Running if job.is_unheard => format!(
            "job {id} is recorded as running on {}, which sends no heartbeats; if it is gone, the broker delivers the job to another worker\n",
            job.worker.as_deref().unwrap_or("a worker")
        ),
        JobState::Running => {
            format!("job {id} does not wait: it runs on {}\n", job.worker.as_deref().unwrap_or("a worker"))
        }
        state => {
            let failure = job.failure.as_ref().map(|failure| format!(" ({})", failure.message)).unwrap_or_default();
            format!("job {id} does not wait: it is {state}{failure}; `gpufleet show {id}` has the details\n")
        }
    }
}

impl Situation<'_> {
    /// In this order the first one is what keeps the job: nothing below it matters until it is gone.
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
            reasons.into_iter().filter_map(|(reason, text)| Some(Reason { reason, text: text? })).collect();
        if found.is_empty() {
            found.push(Reason { reason: "ledger_and_broker_disagree", text: self.disagreement() });
        }
        found
    }

    fn pool(&self) -> &str {
        self.detail.job.pool.as_deref().unwrap_or_default()
    }

    fn retry_at(&self) -> Option<DateTime<Utc>> {
        self.detail.attempts.last().and_then(|attempt| attempt.retry_at).filter(|at| *at > self.now)
    }

    fn no_consumer(&self) -> Option<String> {
        let pool = self.pool();
        (self.depth.consumers == 0).then(|| {
            format!("no worker serves pool {pool}, in which {} messages wait; to start one: gpufleet-worker run --pool {pool}", self.depth.messages)
        })
    }

    /// Whether the job waits in a queue of its pool or in a worker, and not for its retry.
    fn is_in_line(&self) -> bool {
        self.retry_at().is_none() && self.depth.consumers > 0
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
        self.workers.iter().any(|worker| worker.pools.iter().any(|of| of == pool))
    }

    /// The ledger does not know how much memory a job needs, but it is at least that of its inputs.
    fn memory(&self) -> Option<String> {
        let needed = self.detail.job.input_bytes.filter(|_| self.is_in_line())?;
        let devices =
            self.workers.iter().flat_map(|worker| &worker.devices).filter(|device| device.out_of_service.is_none());
        let free = |device: &gpufleet_ledger::DeviceRow| {
            let declared = device.pools.iter().fold(0_u64, |sum, pool| sum.saturating_add(pool.memory_bytes));
            device.memory_bytes.saturating_sub(declared)
        };
        let most = devices.map(free).max()?;
        (needed > most).then(|| {
            format!(
                "its inputs alone need {} of device memory; running jobs leave at most {} on a device of pool {}",
                quantity::bytes(needed),
                quantity::bytes(most),
                self.pool()
            )
        })
    }

    fn jobs_ahead(&self) -> Option<String> {
        let messages = self.depth.messages;
        (self.is_in_line() && messages > 0).then(|| {
            let running = self.running();
            format!(
                "{messages} messages wait in pool {}, itself perhaps among them, and {running} jobs run on its {} workers (an estimate: jobs of a higher priority go first, and a message may have many jobs)",
                self.pool(),
                self.workers.len()
            )
        })
    }

    fn running(&self) -> u32 {
        self.workers.iter().map(|worker| worker.jobs_running).sum()
    }

    /// Workers take messages ahead of time.
    fn busy_worker(&self) -> Option<String> {
        let running = self.running();
        (self.is_in_line() && self.depth.messages == 0 && running > 0).then(|| {
            let pool = self.pool();
            format!("a worker of pool {pool} has probably taken it, and runs it when a running job has ended (running: {running})")
        })
    }

    fn retry_due(&self) -> Option<String> {
        let at = self.retry_at()?;
        let failure = self.detail.attempts.last().and_then(|attempt| attempt.failure.as_ref());
        let reason = failure.map(|failure| format!(": {}", failure.message)).unwrap_or_default();
        Some(format!(
            "an attempt was lost{reason}; the retry is due in {}, at {}",
            history::age(at - self.now),
            at.format("%T UTC")
        ))
    }

    fn disagreement(&self) -> String {
        let job = &self.detail.job;
        if self.now - job.created_at < EVENTS_ON_THEIR_WAY {
            return "nothing keeps it: it was submitted a moment ago, and its events may be on their way".to_owned();
        }
        format!(
            "the ledger and the broker disagree: the ledger has the job as queued, but no message waits in pool {} and its workers are idle; \
             the recorder may be behind, the message may be dead-lettered (`gpufleet dead list`), wait for a device class, or be gone",
            self.pool()
        )
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use gpufleet_ledger::AttemptRow;

    use super::*;
    use crate::cli::{history::tests::job, show::tests::attempt, workers};

    fn now() -> DateTime<Utc> {
        "2026-11-20T09:00:00Z".parse().unwrap()
    }

    fn detail() -> JobDetail {
        let mut job = job("01990f3e-0000-7000-8000-000000000001");
        job.state = JobState::Queued;
        JobDetail { job, attempts: Vec::new(), outputs: Vec::new() }
    }

    fn worker(jobs_running: u32) -> WorkerRow {
        WorkerRow { jobs_running, ..workers::tests::worker("w1", 1, false) }
    }

    fn pool(pool: &str, due: f64, got: f64, jobs_running: u32) -> Pool {
        Pool { pool: pool.to_owned(), jobs_running, due_percent: Some(due), got_percent: Some(got), ..Pool::default() }
    }

    fn found(detail: &JobDetail, depth: (u64, u32), worker: &WorkerRow, pools: &[Pool]) -> Vec<&'static str> {
        let depth = PoolDepth { messages: depth.0, consumers: depth.1 };
        let situation = Situation { detail, depth, workers: vec![worker], pools, now: now() };
        situation.reasons().into_iter().map(|reason| reason.reason).collect()
    }

    #[test]
    fn the_reasons_come_in_their_order() {
        let (idle, busy) = (worker(0), worker(2));
        let mut queued = detail();
        assert_eq!(found(&queued, (3, 0), &idle, &[]), ["no_consumer"]);
        let over = [pool("default", 50.0, 90.0, 0), pool("team-a", 50.0, 10.0, 1)];
        assert_eq!(found(&queued, (3, 1), &busy, &over), ["over_share", "jobs_ahead"]);
        let under = [pool("default", 50.0, 52.0, 0), pool("team-a", 50.0, 48.0, 1)];
        assert_eq!(found(&queued, (3, 1), &busy, &under), ["jobs_ahead"]);
        assert_eq!(found(&queued, (0, 1), &busy, &under), ["busy_worker"]);
        assert_eq!(found(&queued, (0, 1), &idle, &[]), ["ledger_and_broker_disagree"]);
        queued.job.input_bytes = Some(1 << 40);
        assert_eq!(found(&queued, (0, 1), &busy, &[]), ["memory", "busy_worker"]);
        let retried = AttemptRow { retry_at: Some(now() + TimeDelta::seconds(90)), ..attempt() };
        queued.attempts.push(retried);
        assert_eq!(found(&queued, (3, 1), &busy, &over), ["retry_due"]);
        queued.attempts[0].retry_at = Some(now() - TimeDelta::seconds(1));
        assert_eq!(found(&queued, (3, 1), &idle, &[]), ["memory", "jobs_ahead"]);
    }

    #[test]
    fn a_job_that_does_not_wait_is_said_to_run_or_to_have_ended() {
        let mut detail = detail();
        detail.job.state = JobState::Running;
        assert!(does_not_wait(&detail).contains("it runs on w1"));
        detail.job.is_unheard = true;
        assert!(does_not_wait(&detail).contains("sends no heartbeats"));
        detail.job.state = JobState::Failed;
        assert!(does_not_wait(&detail).contains("it is failed; `gpufleet show 0199"));
    }

    #[test]
    fn the_help_names_every_field_and_every_reason() {
        let depth = PoolDepth { messages: 0, consumers: 0 };
        let detail = detail();
        let reasons = Situation { detail: &detail, depth, workers: vec![], pools: &[], now: now() }.reasons();
        json::check(json::WHY, &explanation(&detail, reasons).0);
        for reason in [
            "no_consumer",
            "over_share",
            "memory",
            "jobs_ahead",
            "busy_worker",
            "retry_due",
            "ledger_and_broker_disagree",
        ] {
            assert!(json::WHY.contains(reason), "{reason}");
        }
    }
}
