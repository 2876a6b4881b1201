//! `gpufleet why`: the reason why a job waits.

use chrono::Utc;
use clap::Args;
use gpufleet::{
    Fleet,
    schema::{JobState, PoolName},
};
use gpufleet_ledger::{
    Explanation, JobDetail, Pool, WorkerFilter, WorkerRow,
    why::{Depth, SHARE_WINDOW, Situation},
};

use super::{
    complaint::Complaint,
    connection,
    exit::Exit,
    json, lookup,
    options::{BrokerOptions, OutputOptions},
    pools,
    source::{Source, SourceOptions},
    waiting::Spinner,
};

/// Explain why a job waits
///
/// The first line is the most likely reason. It comes from the ledger, the workers' heartbeats and the broker, which may each be some
/// seconds old.
#[derive(Debug, Args)]
#[command(after_long_help = json::WHY)]
pub struct Options {
    /// Id of the job. The beginning or the end is enough if it is unique; @last is the job that you submitted last
    id: String,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    broker: BrokerOptions,
    #[command(flatten)]
    source: SourceOptions,
}

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    let (explanation, detail) = Spinner::new("looking for the reason").around(explain(options)).await?;
    options.output.format.print(&explanation, |explanation| describe(explanation, &detail))?;
    Ok(Exit::Success)
}

async fn explain(options: &Options) -> Result<(Explanation, Box<JobDetail>), Complaint> {
    let (detail, workers, pools) = Source::ask(&options.source, async |source| read(source, &options.id).await).await?;
    let pool = detail.job.pool.as_deref().and_then(|pool| pool.parse::<PoolName>().ok());
    // A session is not in the queues of its pool's jobs.
    let is_in_queues = detail.job.state == JobState::Queued && !detail.job.is_session();
    let depth = match pool.filter(|_| is_in_queues) {
        None => None,
        Some(pool) => {
            let fleet = connection::fleet(&options.broker, Fleet::builder()).await?;
            let depth = pools::depth(&fleet, &pool).await?;
            let _closed_in_time = tokio::time::timeout(connection::CLOSE_DEADLINE, fleet.close()).await;
            Some(Depth { messages: depth.messages, consumers: depth.consumers })
        }
    };
    let situation = Situation { detail: &detail, depth, workers: &workers, pools: &pools, now: Utc::now() };
    Ok((situation.explain(), detail))
}

/// The job, and if it waits, the workers and pools.
async fn read(source: &Source, id: &str) -> Result<(Box<JobDetail>, Vec<WorkerRow>, Vec<Pool>), Complaint> {
    let detail = lookup::in_source(source, id).await?;
    if detail.job.state != JobState::Queued {
        return Ok((detail, Vec::new(), Vec::new()));
    }
    let workers = source.workers(&WorkerFilter::default()).await?;
    let pools = pools::among(source, &workers, Utc::now() - SHARE_WINDOW).await?;
    Ok((detail, workers, pools))
}

fn describe(explanation: &Explanation, detail: &JobDetail) -> String {
    match explanation.reasons.as_slice() {
        [] => does_not_wait(detail),
        reasons => reasons.iter().map(|reason| format!("{}\n", reason.text)).collect(),
    }
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

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta};
    use gpufleet_ledger::AttemptRow;

    use super::*;
    use crate::{history::tests::job, show::tests::attempt, workers};

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

    fn explained(detail: &JobDetail, depth: Option<(u64, u32)>, worker: &WorkerRow, pools: &[Pool]) -> Explanation {
        let depth = depth.map(|(messages, consumers)| Depth { messages, consumers });
        Situation { detail, depth, workers: std::slice::from_ref(worker), pools, now: now() }.explain()
    }

    fn found(
        detail: &JobDetail,
        depth: impl Into<Option<(u64, u32)>>,
        worker: &WorkerRow,
        pools: &[Pool],
    ) -> Vec<String> {
        let explanation = explained(detail, depth.into(), worker, pools);
        explanation.reasons.into_iter().map(|reason| reason.reason).collect()
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
    fn without_the_broker_the_heartbeats_tell_whether_a_pool_is_served() {
        let (idle, busy) = (worker(0), worker(2));
        let mut queued = detail();
        assert_eq!(found(&queued, None, &idle, &[]), ["ask_broker"]);
        assert_eq!(found(&queued, None, &busy, &[]), ["busy_worker"]);
        queued.job.pool = Some("team-z".to_owned());
        assert_eq!(found(&queued, None, &busy, &[]), ["no_consumer"]);
        queued.job.state = JobState::Running;
        assert_eq!(found(&queued, None, &busy, &[]), [""; 0]);
    }

    #[test]
    fn a_session_waits_for_a_lease_whatever_the_jobs_of_its_pool_do() {
        let over = [pool("default", 50.0, 90.0, 0), pool("team-a", 50.0, 10.0, 1)];
        let mut queued = detail();
        queued.job.program = Some("session".to_owned());
        for depth in [None, Some((0, 1)), Some((3, 0))] {
            assert_eq!(found(&queued, depth, &worker(2), &over), ["lease"]);
        }
        let explanation = explained(&queued, None, &worker(0), &[]);
        assert!(explanation.reasons[0].text.contains("are free on a device now"), "{explanation:?}");
        queued.job.pool = Some("team-z".to_owned());
        assert_eq!(found(&queued, None, &worker(0), &[]), ["no_consumer"]);
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
        json::check(json::WHY, &explained(&detail(), Some((0, 0)), &worker(0), &[]));
        for reason in [
            "no_consumer",
            "over_share",
            "memory",
            "jobs_ahead",
            "busy_worker",
            "retry_due",
            "ledger_and_broker_disagree",
            "ask_broker",
            "lease",
        ] {
            assert!(json::WHY.contains(reason), "{reason}");
        }
    }
}
