//! The outputs in a reply: arrays, or references to arrays in the blob store.
//!
//! A reply is untrusted, so its shapes are compared with the bounds before any array is read.

use gpufleet_schema::{Output, OutputData, Size, bounds::BLOBS_BYTES_MAX};
use gpufleet_transport::{BlobError, BlobStore};

use crate::{Array, StoredArray};

/// An output that the reply contained, or its reference into the blob store.
#[derive(Debug)]
pub(crate) enum ReplyOutput {
    Array(Array),
    Stored(StoredArray),
}

impl ReplyOutput {
    /// Copies an output out of the reply, which may borrow from the message.
    fn of(output: Output<'_>) -> Result<Self, String> {
        let data = match output.data {
            OutputData::Inline(data) => data,
            OutputData::Blob(digest) => {
                let stored = StoredArray::new(digest, output.dtype, output.shape);
                return stored.map(Self::Stored).map_err(|problem| problem.to_string());
            }
        };
        let bytes = data.resolve(output.dtype).map_err(|problem| problem.to_string())?.into_owned();
        Array::new(output.dtype, output.shape, bytes).map(Self::Array).map_err(|problem| problem.to_string())
    }

    fn stored_bytes(&self) -> u64 {
        match self {
            Self::Array(_) => 0,
            Self::Stored(stored) => stored.bytes(),
        }
    }
}

/// All outputs of a reply, or why they are invalid.
pub(crate) fn checked(outputs: Vec<Output<'_>>) -> Result<Vec<(String, ReplyOutput)>, String> {
    let mut all = Vec::new();
    for output in outputs {
        let name = output.name.clone();
        let output = ReplyOutput::of(output).map_err(|problem| format!("output {name:?}: {problem}"))?;
        all.push((name, output));
    }
    match all.iter().map(|(_, output)| output.stored_bytes()).fold(0, u64::saturating_add) {
        0..=BLOBS_BYTES_MAX => Ok(all),
        bytes => Err(format!(
            "its outputs in the blob store have {} in total, but at most {} are allowed; return fewer or smaller outputs",
            Size(bytes),
            Size(BLOBS_BYTES_MAX)
        )),
    }
}

/// Reads an output from the store. An error says what failed, why, and what to do.
pub(crate) async fn read(name: String, stored: StoredArray, store: Option<BlobStore>) -> Result<Array, String> {
    let Some(store) = store else {
        return Err(format!(
            "output {name:?} is in a blob store as {}, but this client has no store; name the store of the workers \
             (FleetBuilder::blobs, --blobs or GPUFLEET_BLOBS) and submit the job again",
            stored.digest()
        ));
    };
    let read = stored.read(store).await;
    read.map_err(|error| format!("output {name:?}: failed to {error}; {}", advice(&error)))
}

const fn advice(error: &BlobError) -> &'static str {
    match error {
        BlobError::Missing { .. } | BlobError::Unusable { .. } => {
            "check that client and workers use the same store, and that no clean-up deletes new blobs"
        }
        BlobError::Length { .. } | BlobError::Damaged { .. } => "submit the job again",
        BlobError::TooLarge { .. } => "return fewer or smaller outputs",
        BlobError::Output { .. } => "make room for the output",
        BlobError::Io { .. } | BlobError::Timeout { .. } => {
            "repair the blob store, then wait again or submit the job again"
        }
    }
}
