//! Deletes objects that no task has used for a given time.
//!
//! S3 can't delete an object on condition of its age. A writer that gives an old blob a new age while a pruner deletes it must notice.
//! The pruner therefore announces each batch by an object, `.pruning`:
//!
//! - The pruner writes the announcement, reads the ages again, deletes what is still old, and removes the announcement.
//! - A writer gives the blob its new age, waits until there is no announcement, and looks whether the blob is still there. If it is not,
//!   the writer stores it again.
//!
//! A writer that found no announcement was either before the pruner, which then saw the new age, or after it, and then saw the blob
//! missing. The pruner deletes within [`BATCH_DEADLINE`] of its announcement, so an older one is that of a dead pruner and no longer
//! counts.
//!
//! Ages are compared with the age of a new object, as the clock of this machine may differ from the server's. Uploads in parts that were
//! never completed can't be listed with this client; a lifecycle rule of the bucket removes them.

use std::{
    collections::HashSet,
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use gpufleet_schema::BlobDigest;
use object_store::{Attributes, Error, ObjectStore as _, ObjectStoreExt as _, PutPayload, path::Path};
use tokio::time::{Instant, sleep};

use super::{
    Objects, PROBE, in_time,
    problem::{io_error, is_unsupported},
};
use crate::{BlobEntry, Pruned, step::Progress};

const ANNOUNCEMENT: &str = ".pruning";
/// Number of objects that are deleted in one request. S3 allows a thousand, but with fewer, writers wait for less time.
const BATCH: usize = 500;
/// Number of ages that are read at once.
const LOOKS_AT_ONCE: usize = 16;
/// Time limit of a batch. A pruner that was suspended gives up its batch.
const BATCH_DEADLINE: Duration = Duration::from_secs(60);
/// The age of an announcement whose pruner is dead: the last deletion began a minute after it, and takes half a minute at most.
const ANNOUNCEMENT_KEPT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);

/// Which blobs to remove.
struct Limit<'a> {
    now: SystemTime,
    unused_for: Duration,
    live: &'a HashSet<BlobDigest>,
}

impl Limit<'_> {
    /// A time in the future counts as new.
    fn is_reached(&self, digest: BlobDigest, stored_at: SystemTime) -> bool {
        !self.live.contains(&digest) && self.is_old(stored_at, self.unused_for)
    }

    fn is_old(&self, stored_at: SystemTime, kept: Duration) -> bool {
        self.now.duration_since(stored_at).is_ok_and(|age| age >= kept)
    }
}

impl Objects {
    pub(super) async fn remove_unused(
        &self,
        unused_for: Duration,
        live: &HashSet<BlobDigest>,
        progress: &Arc<Progress>,
    ) -> io::Result<Pruned> {
        let limit = Limit { now: self.now().await?, unused_for, live };
        let (old, new): (Vec<_>, Vec<_>) = self
            .entries(progress)
            .await?
            .into_iter()
            .partition(|entry| limit.is_reached(entry.digest, entry.stored_at));
        let mut pruned = Pruned::default();
        new.iter().for_each(|entry| pruned.count(false, entry.bytes));
        for batch in old.chunks(BATCH) {
            let removed = self.remove_batch(batch, &limit, progress).await?;
            batch.iter().for_each(|entry| pruned.count(removed.contains(&entry.digest), entry.bytes));
        }
        Ok(pruned)
    }

    /// The blobs of the batch that were removed.
    async fn remove_batch(
        &self,
        batch: &[BlobEntry],
        limit: &Limit<'_>,
        progress: &Arc<Progress>,
    ) -> io::Result<HashSet<BlobDigest>> {
        self.announce(progress).await?;
        let removed = self.remove_announced(batch, limit, progress).await;
        self.delete(&self.announcement()).await?;
        removed
    }

    async fn remove_announced(
        &self,
        batch: &[BlobEntry],
        limit: &Limit<'_>,
        progress: &Progress,
    ) -> io::Result<HashSet<BlobDigest>> {
        let announced = Instant::now();
        let looks: Vec<_> = batch.iter().map(|entry| self.still_old(entry.digest, limit, progress)).collect();
        let looked: Vec<_> = stream::iter(looks).buffered(LOOKS_AT_ONCE).try_collect().await?;
        let old: HashSet<BlobDigest> = looked.into_iter().flatten().collect();
        if announced.elapsed() > BATCH_DEADLINE {
            return Ok(HashSet::new());
        }
        self.delete_all(old.iter().map(|digest| self.key(*digest)).collect()).await?;
        Ok(old)
    }

    /// The blob, if it has not been given a new age.
    async fn still_old(
        &self,
        digest: BlobDigest,
        limit: &Limit<'_>,
        progress: &Progress,
    ) -> io::Result<Option<BlobDigest>> {
        let standing = in_time(self.head(digest)).await?;
        progress.moved(1)?;
        let is_old = standing.is_some_and(|standing| limit.is_reached(digest, standing.stored_at));
        Ok(is_old.then_some(digest))
    }

    async fn delete_all(&self, keys: Vec<Path>) -> io::Result<()> {
        let keys = stream::iter(keys.into_iter().map(Ok)).boxed();
        in_time(self.store.delete_stream(keys).try_for_each(async |_| Ok(()))).await
    }

    /// Writes the announcement. Another pruner's batch comes first.
    async fn announce(&self, progress: &Arc<Progress>) -> io::Result<()> {
        loop {
            self.pruning_ended(progress).await?;
            let (path, content) = (self.announcement(), PutPayload::from_static(PROBE));
            let created = async {
                match self.create(&path, content.clone(), Attributes::new()).await {
                    // A server without conditions: two pruners at once may then see each other's announcement.
                    Err(error) if is_unsupported(&error) => self.store.put(&path, content).await.map(|_| true),
                    created => created,
                }
            };
            if in_time(created).await? {
                return Ok(());
            }
        }
    }

    /// Whether a blob that was given a new age is safe from pruners that saw its old age.
    pub(super) async fn outlives_pruning(&self, digest: BlobDigest, progress: &Arc<Progress>) -> io::Result<bool> {
        self.pruning_ended(progress).await?;
        Ok(self.head(digest).await?.is_some())
    }

    /// Waits until no pruner deletes blobs. Removes the announcement of a dead one.
    async fn pruning_ended(&self, progress: &Arc<Progress>) -> io::Result<()> {
        if self.announced_at().await?.is_none() {
            return Ok(());
        }
        progress.wait_for(ANNOUNCEMENT_KEPT);
        let now = self.now().await?;
        let waiting = Instant::now();
        while let Some(announced_at) = self.announced_at().await? {
            let limit = Limit { now: now + waiting.elapsed(), unused_for: Duration::ZERO, live: &HashSet::new() };
            if limit.is_old(announced_at, ANNOUNCEMENT_KEPT) {
                return self.delete(&self.announcement()).await;
            }
            progress.moved(1)?;
            sleep(POLL).await;
        }
        Ok(())
    }

    async fn announced_at(&self) -> io::Result<Option<SystemTime>> {
        match self.store.head(&self.announcement()).await {
            Ok(found) => Ok(Some(found.last_modified.into())),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(io_error(&error)),
        }
    }

    fn announcement(&self) -> Path {
        self.path(ANNOUNCEMENT)
    }
}
