//! The ledger: whether it can be read, its tables, its recorder and its clock.

use std::time::Duration;

use chrono::Utc;
use gpufleet::schema::PoolName;
use gpufleet_ledger::{Progress, Unfinished, WorkerFilter, WorkerRow, WorkerState};

use super::{
    super::{
        complaint::Complaint,
        connection, environment,
        exit::Exit,
        options::BrokerOptions,
        source::{Source, SourceOptions},
    },
    clock::Reading,
    finding::Finding,
};

/// What was seen of the ledger.
#[derive(Debug)]
pub struct Seen {
    opened: Opened,
    progress: Option<Progress>,
    unfinished: Vec<Unfinished>,
    /// An error is the reason why they are unknown.
    pub workers: Result<Vec<WorkerRow>, String>,
    /// An error is the reason why there is none.
    pub clock: Result<Reading, String>,
}

#[derive(Debug)]
enum Opened {
    NotConfigured,
    Failed(Complaint),
    Database(String),
    Api(String),
}

/// Workers that have been silent for longer are no part of the fleet any more.
const SILENCE_CONSIDERED: Duration = Duration::from_secs(3 * 24 * 3600);
/// An idle recorder reports every ten seconds.
const BEHIND_NOTED: f64 = 60.0;

pub async fn examine(options: &SourceOptions, broker: &BrokerOptions) -> Seen {
    let unknown = |why: &str| (Err(why.to_owned()), Err(why.to_owned()));
    let seen = |opened, (workers, clock)| Seen { opened, progress: None, unfinished: Vec::new(), workers, clock };
    if !is_configured(options, broker) {
        return seen(Opened::NotConfigured, unknown("no ledger is configured"));
    }
    let source = match Source::open(options).await {
        Ok(source) => source,
        Err(complaint) => return seen(Opened::Failed(complaint), unknown("the ledger can't be read")),
    };
    let seen = match read(&source, options).await {
        Ok(seen) => seen,
        Err(complaint) => seen(Opened::Failed(complaint), unknown("the ledger can't be read")),
    };
    source.close().await;
    seen
}

/// Without options, a command reads the ledger of the local fleet, which belongs to no other broker.
fn is_configured(options: &SourceOptions, broker: &BrokerOptions) -> bool {
    let named =
        options.api_url.is_some() || options.database_read_url.is_some() || options.ledger.database_url.is_some();
    named || (broker.amqp_url.is_none() && connection::local_fleet().is_some())
}

async fn read(source: &Source, options: &SourceOptions) -> Result<Seen, Complaint> {
    let filter = WorkerFilter { heard_within: Some(SILENCE_CONSIDERED), ..WorkerFilter::default() };
    let workers = Ok(source.workers(&filter).await?);
    let Source::Database { ledger, .. } = source else {
        let opened = Opened::Api(options.api_url.clone().unwrap_or_default());
        let clock = Err("a read API does not tell the database's clock".to_owned());
        return Ok(Seen { opened, progress: None, unfinished: Vec::new(), workers, clock });
    };
    let failed = |error| connection::ledger_complaint(&error);
    let overview = ledger.overview().await.map_err(failed)?;
    let before = Utc::now();
    let database = ledger.clock().await.map_err(failed)?;
    Ok(Seen {
        opened: Opened::Database(ledger.url().to_string()),
        progress: Some(overview.recorder),
        unfinished: overview.unfinished,
        workers,
        clock: Ok(Reading { before, database, after: Utc::now() }),
    })
}

impl Seen {
    /// The pools that workers serve or jobs wait in.
    pub fn pools(&self) -> Vec<PoolName> {
        let up = self.workers.iter().flatten().filter(|worker| worker.state() == WorkerState::Up);
        let served = up.flat_map(|worker| &worker.pools);
        let waiting = self.unfinished.iter().filter_map(|unfinished| unfinished.pool.as_ref());
        served.chain(waiting).filter_map(|pool| pool.parse().ok()).collect()
    }

    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = self.opened.judge();
        findings.extend(self.progress.as_ref().map(judge_progress));
        findings
    }
}

impl Opened {
    fn judge(&self) -> Vec<Finding> {
        match self {
            Self::NotConfigured => vec![Finding::skipped("ledger", "no database and no read API are configured").fix(
                format!("for the history of jobs, set {} or {}", environment::DATABASE_URL, environment::API_URL),
            )],
            Self::Failed(complaint) if complaint.exit == Exit::LedgerTables => {
                vec![Finding::ok("ledger", "the database answers"), Finding::of_complaint("migrations", complaint)]
            }
            Self::Failed(complaint) => vec![
                Finding::of_complaint("ledger", complaint),
                Finding::skipped("migrations", "the ledger can't be read"),
            ],
            Self::Database(url) => {
                vec![Finding::ok("ledger", url.clone()), Finding::ok("migrations", "the tables fit this release")]
            }
            Self::Api(url) => vec![
                Finding::ok("ledger", format!("read API at {url}")),
                Finding::ok("migrations", "the read API accepts its database's tables"),
            ],
        }
    }
}

fn judge_progress(progress: &Progress) -> Finding {
    const CHECK: &str = "recorder";
    const START: &str = "start one, or look at its log: gpufleet-ledger record";
    match progress.behind_seconds {
        None => Finding::warning(CHECK, "no recorder has ever caught up with the events").fix(START),
        Some(behind) if behind > BEHIND_NOTED => {
            let behind = humantime::format_duration(Duration::from_secs(behind as u64));
            Finding::warning(CHECK, format!("it last caught up with the events {behind} ago")).fix(START)
        }
        Some(_) => Finding::ok(CHECK, "it keeps up with the events"),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Status, *};

    fn statuses(opened: Opened) -> Vec<(String, Status)> {
        opened.judge().into_iter().map(|finding| (finding.check, finding.status)).collect()
    }

    #[test]
    fn a_database_that_answers_with_other_tables_is_told_from_one_that_does_not_answer() {
        let ledger = |status, tables| vec![("ledger".to_owned(), status), ("migrations".to_owned(), tables)];
        let older = Complaint::new(Exit::LedgerTables, "the tables have version 3; upgrade them");
        assert_eq!(statuses(Opened::Failed(older)), ledger(Status::Ok, Status::Error));
        let away = Complaint::new(Exit::Ledger, "it does not answer; check it");
        assert_eq!(statuses(Opened::Failed(away)), ledger(Status::Error, Status::Skipped));
        assert_eq!(statuses(Opened::Database("postgres://h/d".to_owned())), ledger(Status::Ok, Status::Ok));
        assert_eq!(statuses(Opened::NotConfigured), [("ledger".to_owned(), Status::Skipped)]);
    }

    #[test]
    fn a_recorder_that_is_behind_or_absent_is_a_warning() {
        let judged = |behind_seconds| judge_progress(&Progress { caught_up_at: None, behind_seconds }).status;
        assert_eq!(judged(None), Status::Warning);
        assert_eq!(judged(Some(12.0)), Status::Ok);
        assert_eq!(judged(Some(600.0)), Status::Warning);
    }
}
