//! Reads a job's blobs from the store into shared memory, from which the device copies.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use gpufleet_schema::{BlobDigest, Failure};
use gpufleet_transport::BlobStore;

use crate::{
    blobs,
    ipc::slab::{StagingMemory, StagingPart},
};

/// A blob, and its range in the job's memory slot.
pub(super) type Wanted = (BlobDigest, Range<usize>);

/// Reads and checks the blobs at the same time; returns how long that took. After a timeout or a cancellation, the slot's memory is free
/// once the store has responded; no job waits for that.
pub(super) async fn fetch(
    store: Option<&BlobStore>,
    wanted: Vec<Wanted>,
    slot: StagingMemory,
) -> Result<(StagingMemory, Duration), Failure> {
    if wanted.is_empty() {
        return Ok((slot, Duration::ZERO));
    }
    let store = store.ok_or_else(|| blobs::unavailable("this worker has no blob store".to_owned()))?;
    let started = Instant::now();
    let (digests, ranges): (Vec<_>, Vec<_>) = wanted.into_iter().unzip();
    let lending = slot.lending();
    let (slot, parts) = slot.divide(&ranges);
    let reads = digests.into_iter().zip(parts).map(|(digest, part)| Box::pin(read(store, digest, part)));
    try_join_all(reads).await?;
    lending.end();
    let slot = slot.join().expect("each read has dropped its part");
    Ok((slot, started.elapsed()))
}

async fn read(store: &BlobStore, digest: BlobDigest, into: StagingPart) -> Result<(), Failure> {
    let (_into, read) = store.fill(digest, into).await.map_err(|error| blobs::failure(&error))?;
    read.map_err(|error| blobs::failure(&error))
}
