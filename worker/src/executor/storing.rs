//! Stores the outputs that a job offers, from the device to the blob store.

use std::sync::Arc;

use gpufleet_blobs::BlobStore;
use gpufleet_schema::BlobDigest;

use super::{
    flight::Shared,
    pieces::{Lane, MoveError, OutputReader, move_all},
};

/// An output that goes from the device to the blob store, and the index of its buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeavingOutput {
    pub buffer: u32,
    pub bytes: u64,
}

/// Stores the outputs. Returns the digest of each, by the index of its buffer.
pub(super) async fn store(
    shared: &Arc<Shared>,
    store: &BlobStore,
    job: u64,
    outputs: Vec<LeavingOutput>,
    lanes: Vec<Lane>,
) -> Result<Vec<(u32, BlobDigest)>, MoveError> {
    let store_one = |LeavingOutput { buffer, bytes }: LeavingOutput, lane| async move {
        let reader = OutputReader::new(shared, job, buffer, bytes, lane);
        let (digest, reader) = store.put_from(reader).await?;
        Ok(((buffer, digest), reader.into_lane()))
    };
    let (stored, _lanes) = move_all(outputs, lanes, store_one).await?;
    Ok(stored)
}
