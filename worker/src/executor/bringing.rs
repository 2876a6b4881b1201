//! Brings the inputs that a job wants from the blob store to the device.

use std::{
    io,
    sync::{Arc, Mutex},
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use gpufleet_schema::{BlobDigest, Failure, FailureCode, Verdict};
use gpufleet_transport::{BlobError, BlobStore};

use super::{
    flight::Shared,
    pieces::{CopyError, InputWriter, Lane},
};
use crate::{
    blobs,
    ipc::slab::{Lending, StagingMemory},
};

/// An input from the blob store, and the index of its buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct WantedInput {
    pub buffer: u32,
    pub digest: BlobDigest,
    pub bytes: u64,
}

/// Copies and checks the inputs, as many at a time as there are lanes.
pub(super) async fn bring(
    shared: &Arc<Shared>,
    store: Option<&BlobStore>,
    job: u64,
    wanted: Vec<WantedInput>,
    lanes: Vec<Lane>,
) -> Result<(), CopyError> {
    let unavailable = || CopyError::Failed(blobs::unavailable("this worker has no blob store".to_owned()));
    let store = store.ok_or_else(unavailable)?;
    let at_once = lanes.len();
    // After a timeout or a cancellation, the memory is free once the store has responded; no job waits for that.
    let lending = lanes.iter().flatten().next().map(StagingMemory::lending);
    let lanes = Mutex::new(lanes);
    let free = || lanes.lock().expect("no thread panics while holding the lanes");
    let inputs = wanted.into_iter().map(async |input| {
        let lane = free().pop().expect("as many inputs come at once as there are lanes");
        let lane = Box::pin(bring_one(shared, store, job, input, lane)).await?;
        free().push(lane);
        Ok(())
    });
    let () = stream::iter(inputs).buffer_unordered(at_once).try_collect().await?;
    lending.into_iter().for_each(Lending::end);
    Ok(())
}

async fn bring_one(
    shared: &Arc<Shared>,
    store: &BlobStore,
    job: u64,
    WantedInput { buffer, digest, bytes }: WantedInput,
    lane: Lane,
) -> Result<Lane, CopyError> {
    let writer = InputWriter::new(shared, job, buffer, lane);
    match store.read_into(digest, bytes, writer).await {
        Ok(writer) => Ok(writer.into_lane()),
        Err(BlobError::Output { source, .. }) => Err(of_writer(source)),
        Err(error) => Err(CopyError::Failed(blobs::failure(&error))),
    }
}

/// The error of the writer, which the store passes on.
fn of_writer(error: io::Error) -> CopyError {
    let text = error.to_string();
    match error.downcast() {
        Ok(copying) => copying,
        Err(_) => CopyError::Failed(internal(text)),
    }
}

fn internal(message: String) -> Failure {
    Failure::new(Verdict::Infrastructure, FailureCode::Internal, message)
}
