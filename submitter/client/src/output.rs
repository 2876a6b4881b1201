//! The outputs in a reply: arrays, or references to arrays in the blob store.
//!
//! A reply is untrusted, so its shapes are compared with the bounds before any array is read.

use gpufleet_blobs::{BlobError, BlobStore};
use gpufleet_schema::{Dtype, Output, OutputData, Size, bounds::BLOBS_BYTES_MAX};

use crate::{Array, JobError, JobResult, StoredArray};

/// An output in the form of the reply: an array, or a reference to a large array in the blob store.
#[derive(Debug, Clone, PartialEq)]
pub enum UnreadOutput {
    Array(Array),
    Stored(StoredArray),
}

impl UnreadOutput {
    pub fn dtype(&self) -> Dtype {
        match self {
            Self::Array(array) => array.dtype(),
            Self::Stored(stored) => stored.dtype(),
        }
    }

    /// Returns the length of each dimension, slowest first.
    pub fn shape(&self) -> &[u64] {
        match self {
            Self::Array(array) => array.shape(),
            Self::Stored(stored) => stored.shape(),
        }
    }

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
pub(crate) fn checked(outputs: Vec<Output<'_>>) -> Result<Vec<(String, UnreadOutput)>, String> {
    let mut all = Vec::new();
    for output in outputs {
        let name = output.name.clone();
        let output = UnreadOutput::of(output).map_err(|problem| format!("output {name:?}: {problem}"))?;
        all.push((name, output));
    }
    Ok(all)
}

/// Refuses outputs in the store that are together too large to be read into memory.
pub(crate) fn check_readable(outputs: &[(String, UnreadOutput)]) -> Result<(), String> {
    match outputs.iter().map(|(_, output)| output.stored_bytes()).fold(0, u64::saturating_add) {
        0..=BLOBS_BYTES_MAX => Ok(()),
        bytes => Err(format!(
            "its outputs in the blob store have {} in total, but at most {} are read into memory; leave them in the store \
             (JobHandle::wait_unread), or read them later if the job keeps them (`gpufleet fetch`, Fleet::result)",
            Size(bytes),
            Size(BLOBS_BYTES_MAX)
        )),
    }
}

/// Reads all outputs of a result that are in the store.
pub(crate) async fn read_all(
    result: JobResult<UnreadOutput>,
    store: Option<&BlobStore>,
) -> Result<JobResult, JobError> {
    let JobResult { job_id, state, attempt, timings, ran_on, printf_output, round_trip, outputs } = result;
    check_readable(&outputs).map_err(|problem| JobError::Unavailable { job_id, problem })?;
    let mut read = Vec::with_capacity(outputs.len());
    for (name, output) in outputs {
        let array = match output {
            UnreadOutput::Array(array) => array,
            UnreadOutput::Stored(stored) => self::read(name.clone(), stored, store.cloned())
                .await
                .map_err(|problem| JobError::Unavailable { job_id, problem })?,
        };
        read.push((name, array));
    }
    Ok(JobResult { job_id, state, attempt, timings, ran_on, printf_output, round_trip, outputs: read })
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
    read.map_err(|error| format!("output {name:?}: {error}; {}", advice(&error)))
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
