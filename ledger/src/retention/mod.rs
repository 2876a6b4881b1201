//! Drops months of jobs and attempts, and days of device samples, after their retention time, and deletes old actions.
//!
//! A month is dropped in steps. If a run is interrupted, the next run continues with the steps that are left:
//! 1. Detach the partition and rename it to a name that begins with `retired_`. From then on no statement reads or writes it. This locks
//!    the whole table for a moment; the request gives up rather than block other statements.
//! 2. If an archive folder is given, write its rows to a Parquet file, and read the file back.
//! 3. Delete the rows of other tables that belong to its jobs, some in each transaction, and then drop the partition.
//!
//! A late event creates the month again, with that job alone, and the next run drops it again.

use std::{path::PathBuf, time::Duration};

use chrono::{DateTime, Utc};
use sqlx::{Connection as _, PgConnection};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{DatabaseUrl, LedgerError, database::Purpose, error::chain, migrate};

mod actions;
mod archive;
mod month;
mod retired;

pub use archive::ArchiveError;
use month::Table;

/// How long rows are kept. Rows without a limit are kept forever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    pub jobs: Option<Duration>,
    /// Attempts are dropped with their jobs at the latest.
    pub attempts: Option<Duration>,
    /// Samples of devices, which are not archived.
    pub samples: Option<Duration>,
    /// The actions of people on the console, which are not archived.
    pub actions: Option<Duration>,
}

/// The outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// This many partitions were dropped.
    Dropped(usize),
    /// Another process is dropping months now.
    Busy,
}

/// The reason why a run did not finish. The next run continues.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

/// Drops rows after their retention time, and archives them first if `archive` names a folder. If cancelled, it leaves the rest to the next
/// run.
pub async fn keep(url: &DatabaseUrl, kept: Kept, archive: Option<&PathBuf>) -> Result<Outcome, KeepError> {
    let mut connection = migrate::connect(url, Purpose::Maintain).await?;
    migrate::check_version(&mut connection).await?;
    if !lead(&mut connection).await.map_err(failed)? {
        return Ok(Outcome::Busy);
    }
    let now = Utc::now();
    for (table, limit) in
        [(Table::Attempts, kept.attempts_limit()), (Table::Jobs, kept.jobs), (Table::Samples, kept.samples)]
    {
        if let Some(before) = limit.and_then(|limit| ago(now, limit)) {
            month::retire(&mut connection, table, before).await.map_err(failed)?;
        }
    }
    if let Some(before) = kept.actions.and_then(|limit| ago(now, limit)) {
        actions::delete(&mut connection, before).await.map_err(failed)?;
    }
    let mut dropped = 0;
    for partition in retired::list(&mut connection).await.map_err(failed)? {
        if let Some(folder) = archive.filter(|_| partition.is_archived()) {
            archive::write(&mut connection, &partition, folder).await?;
        }
        retired::drop(&mut connection, &partition).await.map_err(failed)?;
        info!(%partition, "dropped a partition that is no longer kept");
        dropped += 1;
    }
    // A failed close is harmless.
    connection.close().await.ok();
    Ok(Outcome::Dropped(dropped))
}

fn failed(source: sqlx::Error) -> LedgerError {
    LedgerError::Database { operation: "dropping old months", source }
}

/// Returns the time that long ago, or `None` if the calendar does not go back so far.
fn ago(now: DateTime<Utc>, time: Duration) -> Option<DateTime<Utc>> {
    now.checked_sub_signed(chrono::Duration::from_std(time).ok()?)
}

/// Returns whether this session may drop months. It holds the lock until it ends.
async fn lead(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar!(r#"/* retention::lead */ select pg_try_advisory_lock(hashtext('gpufleet keep')) as "locked!""#)
        .fetch_one(connection)
        .await
}

impl Kept {
    fn attempts_limit(self) -> Option<Duration> {
        [self.jobs, self.attempts].into_iter().flatten().min()
    }
}

/// Drops old months on a schedule. If several processes do so, one at a time works.
#[derive(Debug)]
pub struct Keeper {
    url: DatabaseUrl,
    kept: Kept,
    archive: Option<PathBuf>,
    every: Duration,
}

impl Keeper {
    pub fn new(url: DatabaseUrl, kept: Kept, archive: Option<PathBuf>, every: Duration) -> Self {
        Self { url, kept, archive, every }
    }

    /// Drops old months now and at each interval, until stopped. A failure is logged and retried at the next interval.
    pub async fn run(self, stop: CancellationToken) {
        let mut ticks = interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            match stop.run_until_cancelled(keep(&self.url, self.kept, self.archive.as_ref())).await {
                Some(Ok(Outcome::Dropped(partitions))) => debug!(partitions, "dropped old months"),
                Some(Ok(Outcome::Busy)) => debug!("another process drops old months"),
                Some(Err(error)) => {
                    warn!(error = chain(&error), "old months are kept; trying again at the next interval")
                }
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_go_with_their_jobs_at_the_latest() {
        let days = |days: u64| Some(Duration::from_secs(days * 86_400));
        let limit = |jobs, attempts| Kept { jobs, attempts, ..Kept::default() }.attempts_limit();
        assert_eq!(limit(days(400), days(90)), days(90));
        assert_eq!(limit(days(30), days(90)), days(30));
        assert_eq!(limit(days(30), None), days(30));
        assert_eq!(limit(None, None), None);
    }
}
