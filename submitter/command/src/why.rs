//! `gpufleet why`: the reason why a job waits.

use chrono::Utc;
use clap::Args;
use gpufleet::{
    Fleet,
    schema::{JobState, PoolName},
};
use gpufleet_ledger::{
    Explanation, JobDetail, JobRow, Pool, WorkerFilter, WorkerRow,
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
    let depth = match pool.filter(|_| detail.job.state == JobState::Queued) {
        None => None,
        Some(pool) => Some(depth(options, &pool, &detail.job).await?),
    };
    let situation = Situation { detail: &detail, depth, workers: &workers, pools: &pools, now: Utc::now() };
    Ok((situation.explain(), detail))
}

/// Asks the broker for the depth of the queues in which the job waits.
async fn depth(options: &Options, pool: &PoolName, job: &JobRow) -> Result<Depth, Complaint> {
    let fleet = connection::fleet(&options.broker, Fleet::builder()).await?;
    let depth = match job {
        job if job.is_session() => pools::session_depth(&fleet, pool).await?,
        job if job.is_host_program() => pools::program_depth(&fleet, pool).await?,
        _ => pools::depth(&fleet, pool).await?,
    };
    let _closed_in_time = tokio::time::timeout(connection::CLOSE_DEADLINE, fleet.close()).await;
    Ok(Depth { messages: depth.messages, consumers: depth.consumers })
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
    use gpufleet::schema::{DeviceSessions, HostProgramInfo, PoolSessions, SessionsSeen};
    use gpufleet_ledger::{AttemptRow, why::Reason};

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

    const GIB: u64 = 1 << 30;

    /// Returns a worker that has `open` of `open_max` sessions, which take half of the memory for sessions on its only device.
    fn with_sessions(open: u32, open_max: u32) -> WorkerRow {
        let mut worker = worker(2);
        let pools = vec![PoolSessions { pool: PoolName::default(), open_max }];
        worker.sessions = Some(SessionsSeen { hosts: vec!["gpu-7".to_owned()], ports: [9480, 9499], pools });
        let sessions = DeviceSessions { open, memory_bytes: 20 * GIB, memory_bytes_max: 40 * GIB, overhead_bytes: GIB };
        worker.devices[0].pools[0].sessions = Some(sessions);
        worker
    }

    fn session(lease: impl Into<Option<u64>>) -> JobDetail {
        let mut queued = detail();
        (queued.job.program, queued.job.lease_bytes) = (Some("session".to_owned()), lease.into());
        queued
    }

    /// Returns the reason for which a session waits, and its text.
    fn session_reason(session: &JobDetail, depth: Option<(u64, u32)>, worker: &WorkerRow) -> (String, String) {
        let over = [pool("default", 50.0, 90.0, 0), pool("team-a", 50.0, 10.0, 1)];
        let mut reasons = explained(session, depth, worker, &over).reasons;
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        let reason = reasons.remove(0);
        (reason.reason, reason.text)
    }

    #[test]
    fn a_session_waits_for_a_worker_that_takes_sessions() {
        let elsewhere =
            JobDetail { job: JobRow { pool: Some("team-z".to_owned()), ..session(GIB).job }, ..session(GIB) };
        for depth in [None, Some((3, 0))] {
            let (reason, text) = session_reason(&elsewhere, depth, &worker(0));
            assert_eq!(reason, "no_consumer");
            assert!(text.ends_with("gpufleet-worker run --pool team-z:sessions=1"), "{text}");
            let (reason, text) = session_reason(&session(GIB), depth, &worker(0));
            assert_eq!(reason, "no_sessions");
            assert!(text.contains("no worker of pool default takes sessions"), "{text}");
        }
        let (reason, text) = session_reason(&session(GIB), Some((1, 0)), &with_sessions(1, 4));
        assert_eq!(reason, "no_consumer");
        assert!(text.contains("although 1 of its workers should"), "{text}");
        let (reason, text) = session_reason(&session(GIB), Some((0, 1)), &worker(0));
        assert_eq!(reason, "lease", "its heartbeat is on the way");
        assert!(text.contains("heartbeats name none"), "{text}");
    }

    #[test]
    fn a_session_waits_for_its_turn() {
        let (reason, text) = session_reason(&session(GIB), None, &with_sessions(4, 4));
        assert_eq!(
            (reason.as_str(), text.as_str()),
            ("sessions_open", "4 of 4 sessions of pool default are open; the next one starts when one ends")
        );
        let (_, text) = session_reason(&session(GIB), Some((2, 1)), &with_sessions(4, 4));
        assert!(text.contains("are open, and 2 sessions wait in its queue; "), "{text}");
    }

    #[test]
    fn a_session_waits_for_memory_or_asks_for_more_than_there_ever_is() {
        let told = |lease: u64| session_reason(&session(lease), Some((0, 1)), &with_sessions(1, 4));
        let (reason, text) = told(39 * GIB + 1);
        assert_eq!(reason, "lease_too_large");
        assert!(text.contains("it asks for 39.0 GiB, but") && text.contains("at most 39.0 GiB on any"), "{text}");
        let (reason, text) = told(39 * GIB);
        assert_eq!(reason, "memory");
        assert!(text.contains("leave at most 19.0 GiB for it on a device of pool default"), "{text}");
        assert_eq!(told(19 * GIB).0, "lease");
        // Jobs have declared most of the device's memory.
        let mut busy = with_sessions(1, 4);
        busy.devices[0].pools[0].memory_bytes = busy.devices[0].memory_bytes - 2 * GIB;
        let (reason, text) = session_reason(&session(2 * GIB), None, &busy);
        assert!(reason == "memory" && text.contains("leave at most 1.00 GiB"), "{reason}: {text}");
    }

    #[test]
    fn a_session_that_nothing_known_keeps_may_have_requirements() {
        for lease in [Some(GIB), None] {
            let (reason, text) = session_reason(&session(lease), None, &with_sessions(2, 4));
            assert_eq!(reason, "lease");
            assert!(
                text.starts_with("2 of 4 sessions of pool default are open, and up to 19.0 GiB are free"),
                "{text}"
            );
        }
        let mut young = session(GIB);
        young.job.created_at = now();
        let (_, text) = session_reason(&young, None, &with_sessions(2, 4));
        assert!(text.contains("it was submitted a moment ago"), "{text}");
        let mut sick = with_sessions(2, 4);
        sick.devices[0].out_of_service = Some("it failed".to_owned());
        let (reason, text) = session_reason(&session(GIB), None, &sick);
        assert!(reason == "lease" && text.contains("a device in service"), "{reason}: {text}");
    }

    fn host_program() -> JobDetail {
        let mut queued = detail();
        queued.job.program = Some("host".to_owned());
        queued
    }

    #[test]
    fn a_host_program_waits_for_a_worker_that_runs_host_programs() {
        let (reason, text) = session_reason(&host_program(), Some((2, 0)), &worker(0));
        assert_eq!(reason, "no_programs");
        assert!(
            text.starts_with("no worker of pool default runs host programs; start one with --pool default:programs=1"),
            "{text}"
        );
        let elsewhere =
            JobDetail { job: JobRow { pool: Some("team-z".to_owned()), ..host_program().job }, ..host_program() };
        for depth in [None, Some((1, 0))] {
            let (reason, text) = session_reason(&elsewhere, depth, &worker(0));
            assert_eq!(reason, "no_consumer");
            assert!(text.contains("--pool team-z:programs=1 --environment NAME=FOLDER"), "{text}");
        }
    }

    #[test]
    fn a_host_program_waits_for_an_environment_that_no_worker_has() {
        let mut program = host_program();
        let info = |environment: &str| HostProgramInfo {
            environment: Some(environment.to_owned()),
            ..HostProgramInfo::default()
        };
        program.job.host_program = Some(info("jax"));
        let reasons = explained(&program, Some((1, 1)), &workers::tests::with_program("w1"), &[]).reasons;
        let Reason { reason, text } = &reasons[0];
        assert_eq!(reason, "no_environment");
        assert!(
            text.starts_with("no worker of pool default has the environment jax; they have science, torch"),
            "{text}"
        );
        program.job.host_program = Some(info("torch"));
        let reasons = explained(&program, Some((1, 1)), &workers::tests::with_program("w1"), &[]).reasons;
        assert!(reasons.iter().all(|reason| reason.reason != "no_environment"), "{reasons:?}");
    }

    #[test]
    fn a_host_program_waits_for_a_whole_device() {
        let mut busy = worker(1);
        busy.devices[0].jobs_running = Some(1);
        for depth in [None, Some((3, 1))] {
            let (reason, text) = session_reason(&host_program(), depth, &busy);
            assert_eq!(reason, "devices_in_use");
            assert!(
                text.contains("each device of pool default is in use") && text.contains("takes a whole device"),
                "{text}"
            );
            assert_eq!(text.contains("and 3 host programs wait"), depth.is_some());
        }
        // A session alone keeps a device from being whole, a free device beside it does not.
        let mut leased = with_sessions(1, 4);
        leased.devices[0].jobs_running = Some(0);
        assert_eq!(session_reason(&host_program(), Some((0, 1)), &leased).0, "devices_in_use");
        let mut free = worker(0);
        free.devices[0].jobs_running = Some(0);
        let (reason, text) = session_reason(&host_program(), Some((0, 1)), &free);
        assert!(reason == "device" && text.contains("pool option `programs`"), "{reason}: {text}");
        let (_, text) = session_reason(&host_program(), None, &free);
        assert!(text.contains("asks the broker too"), "{text}");
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
            "no_sessions",
            "lease_too_large",
            "sessions_open",
            "lease",
            "no_programs",
            "no_environment",
            "devices_in_use",
            "device",
        ] {
            assert!(json::WHY.contains(reason), "{reason}");
        }
    }
}
