//! Drops the months of jobs and attempts, and the days of device samples, that are older than they are kept, and deletes old actions.
//!
//! A month goes in steps, each of which may be interrupted; the next run goes on with what it finds:
//! 1. Its partition is detached and gets a name that begins with `retired_`. No statement reads or writes it any more. This takes a lock on the whole
//!    table for a moment, and gives up rather than let others wait.
//! 2. If asked, its rows are written to a Parquet file, which is read back.
//! 3. Rows of other tables that belong to its jobs are deleted, some in a transaction, and then the partition is dropped.
//!
//! An event that comes later makes the month again, with that job alone, and the next run drops it again.

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

/// How long rows are kept. What has no limit is kept for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    pub jobs: Option<Duration>,
    /// Attempts go with their jobs at the latest.
    pub attempts: Option<Duration>,
    /// Samples of devices. They are not archived.
    pub samples: Option<Duration>,
    /// What people did through the console. It is not archived.
    pub actions: Option<Duration>,
}

/// What a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// This many partitions were dropped.
    Dropped(usize),
    /// Another process does it now.
    Busy,
}

/// Why a run did not finish. The next one goes on.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

/// Drops what is older than it is kept, after it was written to the folder `archive`, if there is one. Cancelling leaves the rest for the next
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

/// A time that long ago; none if the calendar does not go back so far.
fn ago(now: DateTime<Utc>, time: Duration) -> Option<DateTime<Utc>> {
    now.checked_sub_signed(chrono::Duration::from_std(time).ok()?)
}

/// Whether this session is the one that drops months, until it ends.
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

/// Drops old months on a schedule. Of several processes, one does it at a time.
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

    /// Drops what is old now and at each interval until stopped. A failure is logged, and the next interval tries again.
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
