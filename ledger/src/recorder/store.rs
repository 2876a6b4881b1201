//! Records events over one connection to the database, and opens another one when it breaks.

use std::{collections::HashSet, sync::Arc, time::Duration};

use chrono::{DateTime, NaiveDate, Utc};
use gpufleet_schema::{AttemptFinished, Event, bounds::KEPT_INLINE_BYTES_MAX};
use sqlx::PgConnection;
use tracing::{debug, info, warn};

use super::{
    Metrics,
    change::kept_excess,
    merge::Changes,
    months,
    rollups::{ForgetOld, MergeRollups},
    samples,
    upkeep::{self, ForgetInputs, FreeExpired, NoteCaughtUp, ReadLabelKeys},
    write::RecordChanges,
};
use crate::{
    DatabaseUrl, LedgerError,
    database::{Purpose, QUERY_TIMEOUT},
    disposition::Disposition,
    migrate,
    tx::{self, Transaction},
};

/// Writes events into the ledger's tables.
#[derive(Debug)]
pub struct Store {
    url: DatabaseUrl,
    connection: Option<PgConnection>,
    /// The first days of the months that have a partition.
    months: HashSet<NaiveDate>,
    /// The days that have a partition for samples.
    days: HashSet<NaiveDate>,
    /// The label keys by which ends are counted, as of the last upkeep.
    label_keys: Vec<String>,
    /// Whether ends are counted at all.
    statistics: bool,
    metrics: Option<Arc<Metrics>>,
}

/// An event that the ledger can't hold, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Rejected {
    pub event: Event,
    pub reason: String,
}

/// The maximum number of events in a transaction. A transaction writes a row of statistics for each value that occurs in it, so fewer
/// transactions write fewer rows.
const EVENTS_PER_TRANSACTION: usize = 4000;

impl Store {
    /// Connects, and checks that the tables match this program.
    pub async fn connect(url: DatabaseUrl) -> Result<Self, LedgerError> {
        let mut store = Self {
            url,
            connection: None,
            months: HashSet::new(),
            days: HashSet::new(),
            label_keys: Vec::new(),
            statistics: true,
            metrics: None,
        };
        store.read_label_keys().await?;
        Ok(store)
    }

    /// Turns counting off, so that a benchmark can measure what it costs.
    #[doc(hidden)]
    #[must_use]
    pub fn without_statistics(self) -> Self {
        Self { statistics: false, ..self }
    }

    /// Lets the store count rows and errors in these metrics.
    pub(super) fn metrics(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Records events in order, and returns those that no table can hold.
    ///
    /// After an error or a cancellation, any of them may be recorded. The caller must call again with the same events, which is harmless.
    pub async fn record(&mut self, events: &[Event]) -> Result<Vec<Rejected>, LedgerError> {
        let mut rejected = Vec::new();
        for events in events.chunks(EVENTS_PER_TRANSACTION) {
            self.record_some(&events.iter().collect::<Vec<_>>(), &mut rejected).await?;
        }
        Ok(rejected)
    }

    /// Notes that all events that were published before this long ago are recorded.
    pub async fn note_caught_up(&mut self, ago: Duration) -> Result<(), LedgerError> {
        self.run(&NoteCaughtUp(ago)).await
    }

    /// Does a bounded amount of the regular work: merges statistics, frees the bytes of expired outputs, and deletes the inputs of jobs
    /// that ended long ago. Returns whether statistics are left to merge. If cancelled, the next call continues. If one part fails, the
    /// others still run.
    pub async fn upkeep(&mut self) -> Result<bool, LedgerError> {
        // Another process may have dropped partitions.
        self.months.clear();
        self.days.clear();
        let merged = self.repeat(&MergeRollups).await;
        let done = [
            self.read_label_keys().await,
            self.run(&ForgetOld).await,
            self.repeat(&FreeExpired).await.map(drop),
            self.repeat(&ForgetInputs).await.map(drop),
        ];
        done.into_iter().collect::<Result<(), _>>().and(merged)
    }

    async fn read_label_keys(&mut self) -> Result<(), LedgerError> {
        self.label_keys = self.run(&ReadLabelKeys).await?;
        Ok(())
    }

    /// Runs a transaction until it has nothing left to do, up to a maximum number of times. Returns whether something is left.
    async fn repeat(&mut self, transaction: &impl Transaction<Output = bool>) -> Result<bool, LedgerError> {
        for _ in 0..upkeep::ROUNDS_MAX {
            if !self.run(transaction).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Closes the connection and notifies the server.
    pub async fn close(mut self) {
        if let Some(connection) = self.connection.take() {
            // An unreachable server needs no notice, so an error is ignored.
            tokio::time::timeout(QUERY_TIMEOUT, sqlx::Connection::close(connection)).await.ok();
        }
    }

    /// Records events in a transaction. If the database refuses the data, halves the events until each faulty one is alone.
    async fn record_some(&mut self, events: &[&Event], rejected: &mut Vec<Rejected>) -> Result<(), LedgerError> {
        let mut rest = events.to_vec();
        while !rest.is_empty() {
            let (changes, events, others) = merge(&rest, rejected);
            self.record_merged(&changes, events, rejected).await?;
            rest = others;
        }
        Ok(())
    }

    async fn record_merged(
        &mut self,
        changes: &Changes,
        events: Vec<&Event>,
        rejected: &mut Vec<Rejected>,
    ) -> Result<(), LedgerError> {
        let source = match self.write(changes).await {
            Ok(()) => {
                events.into_iter().for_each(warn_of_excess);
                return Ok(());
            }
            Err(LedgerError::Database { source, .. }) if Disposition::of(&source) == Disposition::BadData => source,
            Err(error) => return Err(error),
        };
        if let [event] = events[..] {
            rejected
                .push(Rejected { event: event.clone(), reason: format!("the database refused the event: {source}") });
            return Ok(());
        }
        let (first, second) = events.split_at(events.len() / 2);
        Box::pin(self.record_some(first, rejected)).await?;
        Box::pin(self.record_some(second, rejected)).await
    }

    async fn write(&mut self, changes: &Changes) -> Result<(), LedgerError> {
        if changes.is_empty() {
            return Ok(());
        }
        let today = Utc::now().date_naive();
        for month in months::needed(changes, today) {
            self.prepare_month(month).await?;
        }
        for day in samples::days(changes.samples.keys(), today) {
            self.prepare_day(day).await?;
        }
        let label_keys = self.label_keys.clone();
        let counted_by = self.statistics.then_some(label_keys.as_slice());
        let foreign = self.run(&RecordChanges { changes, today, counted_by }).await?;
        if foreign > 0 {
            warn!(jobs = foreign, "dropped events of jobs that belong to other users");
        }
        if let Some(metrics) = &self.metrics {
            metrics.wrote(changes);
        }
        Ok(())
    }

    async fn prepare_month(&mut self, month: NaiveDate) -> Result<(), LedgerError> {
        if self.months.contains(&month) {
            return Ok(());
        }
        match self.run(&EnsurePartition(months::beginning(month))).await? {
            Some(true) => info!(%month, "created a partition"),
            Some(false) => {}
            None => debug!(%month, "the table is in use; the default partition takes the rows until the next upkeep"),
        }
        self.months.insert(month);
        Ok(())
    }

    async fn prepare_day(&mut self, day: NaiveDate) -> Result<(), LedgerError> {
        if !self.days.contains(&day) {
            self.run(&EnsureDay(day)).await?;
            self.days.insert(day);
        }
        Ok(())
    }

    /// Runs a transaction. The connection survives if the database refuses the data; after any other error it is dropped.
    async fn run<T: Transaction>(&mut self, transaction: &T) -> Result<T::Output, LedgerError> {
        let outcome = match self.connected().await {
            Ok(connection) => tx::run(transaction, connection).await,
            Err(error) => Err(error),
        };
        if let Some(metrics) = &self.metrics {
            metrics.used_database(outcome.as_ref().err());
        }
        if let Err(error) = &outcome {
            let keep = matches!(error, LedgerError::Database { source, .. } if Disposition::of(source) == Disposition::BadData);
            if !keep {
                self.connection = None;
            }
        }
        outcome
    }

    async fn connected(&mut self) -> Result<&mut PgConnection, LedgerError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                // An operator may have replaced the database.
                self.months.clear();
                self.days.clear();
                open(&self.url).await?
            }
        };
        Ok(self.connection.insert(connection))
    }
}

/// Merges events. Returns the changes, the merged events, and the events of jobs that have changes of another user. An event that no column
/// can hold is rejected here, because it would fail the whole transaction.
fn merge<'a>(events: &[&'a Event], rejected: &mut Vec<Rejected>) -> (Changes, Vec<&'a Event>, Vec<&'a Event>) {
    let mut changes = Changes::default();
    let (mut merged, mut others) = (Vec::with_capacity(events.len()), Vec::new());
    for event in events {
        match changes.add(event) {
            Ok(true) => merged.push(*event),
            Ok(false) => others.push(*event),
            Err(error) => rejected.push(Rejected { event: (*event).clone(), reason: error.to_string() }),
        }
    }
    (changes, merged, others)
}

/// Logs a warning if an event keeps too many bytes. Such an event is forged, and its sender gets no answer.
fn warn_of_excess(event: &Event) {
    let Event::AttemptFinished(AttemptFinished { job_id, kept: Some(kept), .. }) = event else { return };
    if let Some(bytes) = kept_excess(kept) {
        warn!(%job_id, bytes, bytes_max = KEPT_INLINE_BYTES_MAX, "recorded kept outputs without their bytes, which are too many");
    }
}

async fn open(url: &DatabaseUrl) -> Result<PgConnection, LedgerError> {
    let mut connection = migrate::connect(url, Purpose::Record).await?;
    tokio::time::timeout(QUERY_TIMEOUT, migrate::check_version(&mut connection))
        .await
        .unwrap_or_else(|_| Err(LedgerError::timed_out()))?;
    Ok(connection)
}

struct EnsurePartition(DateTime<Utc>);

impl Transaction for EnsurePartition {
    const NAME: &'static str = "making a partition";
    /// Whether the partition was created. `None` if another session has the table locked: later statements would queue behind this request.
    type Output = Option<bool>;

    async fn run(&self, connection: &mut PgConnection) -> Result<Option<bool>, sqlx::Error> {
        sqlx::query!("/* recorder::ensure_partition::patience */ set local lock_timeout = '100ms'")
            .execute(&mut *connection)
            .await?;
        let made = sqlx::query_scalar!(
            r#"/* recorder::ensure_partition */ select ensure_jobs_partition($1) as "made!""#,
            self.0
        )
        .fetch_one(connection)
        .await;
        match made {
            Ok(made) => Ok(Some(made)),
            Err(error) if Disposition::is_lock_timeout(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

struct EnsureDay(NaiveDate);

impl Transaction for EnsureDay {
    const NAME: &'static str = "making a partition for samples";
    type Output = bool;

    async fn run(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        sqlx::query_scalar!(r#"/* recorder::ensure_day */ select ensure_samples_partition($1) as "made!""#, self.0)
            .fetch_one(connection)
            .await
    }
}
