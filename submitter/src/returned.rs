//! What a reply says of a job's outputs: the arrays, or their names in the blob store.
//!
//! A reply is a stranger's until it is checked: what its shapes say is compared with the bounds before anything is read for it.

use gpufleet_schema::{Output, OutputData, Size, bounds::BLOBS_BYTES_MAX};
use gpufleet_transport::{BlobError, BlobStore};

use crate::{Array, StoredArray};

/// An output, or where it waits.
#[derive(Debug)]
pub(crate) enum Returned {
    Array(Array),
    Stored(StoredArray),
}

impl Returned {
    /// Copies a reply's output, which may borrow from the message.
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

/// All outputs of a reply, or what is wrong about them.
pub(crate) fn checked(outputs: Vec<Output<'_>>) -> Result<Vec<(String, Returned)>, String> {
    let mut all = Vec::new();
    for output in outputs {
        let name = output.name.clone();
        let returned = Returned::of(output).map_err(|problem| format!("output {name:?}: {problem}"))?;
        all.push((name, returned));
    }
    match all.iter().map(|(_, returned)| returned.stored_bytes()).fold(0, u64::saturating_add) {
        0..=BLOBS_BYTES_MAX => Ok(all),
        bytes => Err(format!(
            "its outputs in the blob store are {} together, at most {} are allowed; return fewer or smaller outputs",
            Size(bytes),
            Size(BLOBS_BYTES_MAX)
        )),
    }
}

/// Reads an output that waits in the store, or says what, why and what next.
pub(crate) async fn read(name: String, stored: StoredArray, store: Option<BlobStore>) -> Result<Array, String> {
    let Some(store) = store else {
        return Err(format!(
            "output {name:?} waits in a blob store as {}, and this client has none; name the folder that the workers use \
             (FleetBuilder::blobs, --blobs or GPUFLEET_BLOBS) and submit the job again",
            stored.digest()
        ));
    };
    let read = stored.read(store).await;
    read.map_err(|error| format!("output {name:?}: failed to {error}; {}", advice(&error)))
}

const fn advice(error: &BlobError) -> &'static str {
    match error {
        BlobError::Missing { .. } | BlobError::Folder { .. } => {
            "check that client and workers use the same folder, and that no clean-up deletes new blobs"
        }
        BlobError::Length { .. } | BlobError::Damaged { .. } => "submit the job again",
        BlobError::TooLarge { .. } => "return fewer or smaller outputs",
        BlobError::Io { .. } | BlobError::Timeout { .. } => {
            "repair the blob store, then wait again or submit the job again"
        }
    }
}
