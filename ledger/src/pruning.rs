//! Removes blobs that no job uses, by mark and sweep. The ledger marks the used blobs; the store deletes unmarked blobs that were stored
//! long ago.
//!
//! An interrupted sweep does no harm; the next one continues. Nothing is removed if the ledger can't be read, or if its recorder is far
//! behind.

use std::{sync::Arc, time::Duration};

use gpufleet_blobs::{BlobError, BlobLocation, BlobStore, Pruned};
use sqlx::{Connection, PgConnection};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    BLOB_GRACE, DatabaseUrl, Ledger, LedgerError, MarkError,
    database::{PING_TIMEOUT, Purpose, QUERY_TIMEOUT},
    error::chain,
    migrate,
};

/// The default minimum age of removed blobs. A blob that was stored within this time is never removed.
pub const PRUNED_AGE_DEFAULT: Duration = Duration::from_secs(2 * BLOB_GRACE.as_secs());

/// Why a store was not pruned, or not completely.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    #[error(transparent)]
    Mark(#[from] MarkError),
    #[error(transparent)]
    Sweep(#[from] BlobError),
}

/// Removes the blobs that no job uses and that were last stored longer ago than `unused_for`. If cancelled, it stops at the next blob.
pub async fn prune_blobs(ledger: &Ledger, store: &BlobStore, unused_for: Duration) -> Result<Pruned, PruneError> {
    let live = ledger.live_blobs().await?;
    Ok(store.prune(unused_for, Arc::new(live)).await?)
}

/// Prunes a store on a schedule. If several processes have the same store, one of them prunes it.
#[derive(Debug)]
pub struct BlobPruner {
    url: DatabaseUrl,
    location: BlobLocation,
    /// Opened on first use, because an unreachable store must not keep a recorder from recording.
    store: Option<BlobStore>,
    every: Duration,
    /// The session whose lock makes this process the leader.
    leadership: Option<PgConnection>,
    /// Counted since the start of the process.
    removed_total: u64,
    removed_bytes_total: u64,
}

impl BlobPruner {
    pub fn new(url: DatabaseUrl, location: BlobLocation, every: Duration) -> Self {
        Self { url, location, store: None, every, leadership: None, removed_total: 0, removed_bytes_total: 0 }
    }

    /// Prunes now and at each interval until stopped. A failure is logged and retried at the next interval.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut ticks = interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            if let Some(Err(error)) = stop.run_until_cancelled(self.prune()).await {
                warn!(error = chain(&error), store = %self.location, "no blobs removed; trying again at the next interval");
            }
        }
    }

    async fn prune(&mut self) -> Result<(), PruneError> {
        if !self.leads().await.map_err(MarkError::from)? {
            debug!(store = %self.location, "another recorder prunes this store");
            return Ok(());
        }
        let store = match self.store.take() {
            Some(store) => store,
            None => BlobStore::open(self.location.clone()).await?,
        };
        let store = self.store.insert(store);
        let ledger = Ledger::connect(self.url.clone()).await.map_err(MarkError::from)?;
        let pruned = prune_blobs(&ledger, store, PRUNED_AGE_DEFAULT).await;
        ledger.close().await;
        let Pruned { removed, removed_bytes, left, left_bytes } = pruned?;
        self.removed_total += removed;
        self.removed_bytes_total += removed_bytes;
        info!(
            store = %self.location,
            removed,
            removed_bytes,
            left,
            left_bytes,
            removed_total = self.removed_total,
            removed_bytes_total = self.removed_bytes_total,
            "blobs pruned"
        );
        Ok(())
    }

    /// Returns whether this process prunes the store. Its session takes the lock once and keeps it until the session ends.
    async fn leads(&mut self) -> Result<bool, LedgerError> {
        if let Some(connection) = &mut self.leadership
            && matches!(timeout(PING_TIMEOUT, connection.ping()).await, Ok(Ok(())))
        {
            return Ok(true);
        }
        self.leadership = None;
        let mut connection = migrate::connect(&self.url, Purpose::Query).await?;
        let locked = sqlx::query_scalar!(
            r#"/* pruning::lead */ select pg_try_advisory_lock(hashtextextended('gpufleet blobs ' || $1::text, 0)) as "locked!""#,
            self.location.to_string(),
        );
        let locked = match timeout(QUERY_TIMEOUT, locked.fetch_one(&mut connection)).await {
            Ok(locked) => {
                locked.map_err(|source| LedgerError::Database { operation: "choosing who prunes the store", source })?
            }
            Err(_) => return Err(LedgerError::timed_out()),
        };
        self.leadership = locked.then_some(connection);
        Ok(locked)
    }
}
