//! Brings a job's blobs from the store to where the device copies from.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use gpufleet_schema::{BlobDigest, Failure};
use gpufleet_transport::BlobStore;

use crate::{blobs, ipc::slab::Slot};

/// A blob, and its place in the job's slot.
pub(super) type Wanted = (BlobDigest, Range<usize>);

/// A slot that is lent to the store while it reads.
struct Lent {
    slot: Slot,
    range: Range<usize>,
}

impl AsMut<[u8]> for Lent {
    fn as_mut(&mut self) -> &mut [u8] {
        self.slot.bytes_mut(self.range.clone())
    }
}

/// Reads what is wanted, and checks it; tells how long that took. Where it gives up, or is cancelled, the slot's memory is free once the
/// store has let go of it, and nobody waits for that.
pub(super) async fn fetch(
    store: Option<&BlobStore>,
    wanted: Vec<Wanted>,
    mut slot: Slot,
) -> Result<(Slot, Duration), Failure> {
    if wanted.is_empty() {
        return Ok((slot, Duration::ZERO));
    }
    let started = Instant::now();
    for (digest, range) in wanted {
        let store = store.ok_or_else(|| blobs::unavailable("this worker has no blob store".to_owned()))?;
        let lending = slot.lending();
        let filling = store.fill(digest, Lent { slot, range });
        let (lent, read) = filling.await.map_err(|error| blobs::failure(&error))?;
        lending.end();
        read.map_err(|error| blobs::failure(&error))?;
        slot = lent.slot;
    }
    Ok((slot, started.elapsed()))
}
