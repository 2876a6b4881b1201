//! Fetches the inputs that a job requests from the blob store, and copies them to the device.

use std::sync::Arc;

use gpufleet_blobs::BlobStore;
use gpufleet_schema::{BlobDigest, Buffer, Task};

use super::{
    flight::Shared,
    pieces::{InputWriter, Lane, MoveError, move_all},
};

/// An input from the blob store, and the index of its buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct WantedInput {
    pub buffer: u32,
    pub digest: BlobDigest,
    pub bytes: u64,
}

/// Returns the inputs in these buffers. It is an error if the child requests another buffer, or the same input twice.
pub(super) fn wanted_inputs(task: &Task<'_>, buffers: &[u32]) -> Result<Vec<WantedInput>, MoveError> {
    let mut sorted = buffers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let input = |index: &u32| {
        let (digest, bytes) = task.buffers.get(*index as usize).and_then(Buffer::blob)?;
        Some(WantedInput { buffer: *index, digest, bytes })
    };
    let wanted: Option<Vec<_>> = sorted.iter().map(input).collect();
    wanted
        .filter(|wanted| wanted.len() == buffers.len())
        .ok_or_else(|| MoveError::internal("the executor asked for a buffer that is no input".to_owned()))
}

/// Fetches, checks and copies the inputs. Returns the lanes.
pub(super) async fn bring(
    shared: &Arc<Shared>,
    store: &BlobStore,
    job: u64,
    inputs: Vec<WantedInput>,
    lanes: Vec<Lane>,
) -> Result<Vec<Lane>, MoveError> {
    let bring_one = |input: WantedInput, lane| async move {
        let writer = InputWriter::new(shared, job, input.buffer, lane);
        let writer = store.read_into(input.digest, input.bytes, writer).await?;
        Ok(((), writer.into_lane()))
    };
    let (_all, lanes) = move_all(inputs, lanes, bring_one).await?;
    Ok(lanes)
}
