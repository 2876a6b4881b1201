//! Reads a job's blobs from the store into shared memory, from which the device copies.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use gpufleet_schema::{BlobDigest, Failure};
use gpufleet_transport::BlobStore;

use crate::{blobs, ipc::slab::StagingMemory};

/// A blob, and its range in the job's memory slot.
pub(super) type Wanted = (BlobDigest, Range<usize>);

/// A slot that the store writes to while it reads a blob.
struct Lent {
    slot: StagingMemory,
    range: Range<usize>,
}

impl AsMut<[u8]> for Lent {
    fn as_mut(&mut self) -> &mut [u8] {
        self.slot.bytes_mut(self.range.clone())
    }
}

/// Reads and checks the blobs; returns how long that took. After a timeout or a cancellation, the slot's memory is free once the
/// store has responded; no job waits for that.
pub(super) async fn fetch(
    store: Option<&BlobStore>,
    wanted: Vec<Wanted>,
    mut slot: StagingMemory,
) -> Result<(StagingMemory, Duration), Failure> {
    if wanted.is_empty() {
        return Ok((slot, Duration::ZERO));
    }
    let started = Instant::now();
    for (digest, range) in wanted {
        let store = store.ok_or_else(|| blobs::unavailable("this worker has no blob store".to_owned()))?;
        let lending = slot.lending();
        let filling = Box::pin(store.fill(digest, Lent { slot, range }));
        let (lent, read) = filling.await.map_err(|error| blobs::failure(&error))?;
        lending.end();
        read.map_err(|error| blobs::failure(&error))?;
        slot = lent.slot;
    }
    Ok((slot, started.elapsed()))
}
