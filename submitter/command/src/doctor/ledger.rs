//! The ledger: whether it can be read, its tables, its recorder and its clock.

use std::time::Duration;

use chrono::{DateTime, Utc};
use gpufleet::schema::PoolName;
use gpufleet_ledger::{LaterKind, Progress, Unfinished, WorkerFilter, WorkerRow, WorkerState};

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
    /// None if the ledger can't be read.
    pub progress: Option<Progress>,
    unfinished: Vec<Unfinished>,
    later: Vec<LaterKind>,
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
/// Unknown events that came before may be from programs that are gone.
const LATER_CONSIDERED: Duration = Duration::from_secs(24 * 3600);

pub async fn examine(options: &SourceOptions, broker: &BrokerOptions) -> Seen {
    let unknown = |why: &str| (Err(why.to_owned()), Err(why.to_owned()));
    let seen = |opened, (workers, clock)| Seen {
        opened,
        progress: None,
        unfinished: Vec::new(),
        later: Vec::new(),
        workers,
        clock,
    };
    if !is_configured(options, broker) {
        return seen(Opened::NotConfigured, unknown("no ledger is configured"));
    }
    let asked = Source::ask(options, async |source| read(source, options).await).await;
    asked.unwrap_or_else(|complaint| seen(Opened::Failed(complaint), unknown("the ledger can't be read")))
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
    let overview = source.overview().await?;
    let (progress, unfinished) = (Some(overview.recorder), overview.unfinished);
    let Source::Database { ledger, .. } = source else {
        let opened = Opened::Api(options.api_url.clone().unwrap_or_default());
        let clock = Err("a read API does not show the database's clock".to_owned());
        return Ok(Seen { opened, progress, unfinished, later: Vec::new(), workers, clock });
    };
    let failed = |error| connection::ledger_complaint(&error);
    let before = Utc::now();
    let database = ledger.clock().await.map_err(failed)?;
    let clock = Ok(Reading { before, database, after: Utc::now() });
    let later = ledger.later_kinds().await.map_err(failed)?;
    let opened = Opened::Database(ledger.url().to_string());
    Ok(Seen { opened, progress, unfinished, later, workers, clock })
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
        findings.extend(judge_later(&self.later, Utc::now()));
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

/// Events that the recorder could not use lately, because programs of a later release sent them.
fn judge_later(kinds: &[LaterKind], now: DateTime<Utc>) -> Option<Finding> {
    let recent = |kind: &&LaterKind| (now - kind.last_at).to_std().is_ok_and(|age| age < LATER_CONSIDERED);
    let recent: Vec<&str> = kinds.iter().filter(recent).map(|kind| kind.kind.as_str()).collect();
    (!recent.is_empty()).then(|| {
        let message = format!("it could not use events of later releases: {}", recent.join(", "));
        Finding::warning("events", message).fix("upgrade gpufleet-ledger to the release of the newest worker or client")
    })
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Status, *};

    #[test]
    fn events_of_a_later_release_are_a_warning_for_a_day() {
        let now = Utc::now();
        let kind = |kind: &str, last_at| LaterKind {
            kind: kind.to_owned(),
            first_at: last_at,
            last_at,
            last_event: "{}".to_owned(),
        };
        let old = kind("job_leased", now - chrono::Duration::days(2));
        assert!(judge_later(std::slice::from_ref(&old), now).is_none());
        let finding = judge_later(&[old, kind("fleet_paused", now)], now).unwrap();
        assert_eq!(finding.status, Status::Warning);
        assert!(finding.found.ends_with("later releases: fleet_paused"), "{}", finding.found);
    }

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
}
