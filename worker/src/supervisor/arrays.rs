//! Arrays in the blob store: inputs that tasks name there, and large outputs that the worker stores.

use gpufleet_schema::{
    Data, Encoding, Failure, FailureCode, LargeOutputs, Output, OutputData, Size, Task, Verdict,
    bounds::{BLOB_BYTES_MIN, MESSAGE_BYTES_MAX},
};

use gpufleet_transport::{BlobError, BlobStore};

use super::Supervisor;
use crate::{blobs, disposition::Ending, executor::OutputBytes};

/// An output of a successful job.
#[derive(Debug)]
pub(super) enum JobOutput {
    /// Still in the executor's staging memory.
    Staged(OutputBytes),
    /// Copied from staging memory, because the reply waits for other jobs of its message.
    Kept(Output<'static>),
    /// In the blob store, with its length in bytes.
    Stored(Output<'static>, usize),
}

/// The size of a reply without its outputs: names, timings, a failure's text and printed text.
const REPLY_OVERHEAD_BYTES: u64 = 256 << 10;

impl JobOutput {
    pub(super) fn as_output(&self) -> Output<'_> {
        match self {
            Self::Staged(output) => output.as_output(),
            Self::Kept(output) | Self::Stored(output, _) => output.borrowed(),
        }
    }

    /// The output without staging memory: copies it if it is still staged.
    pub(super) fn kept(self) -> Self {
        match self {
            Self::Staged(output) => Self::Kept(output.as_output().into_owned()),
            other => other,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Stored(_, bytes) => *bytes,
            other => other.inline_bytes(),
        }
    }

    /// Its size in a message.
    pub(super) fn inline_bytes(&self) -> usize {
        match self {
            Self::Staged(output) => output.bytes.len(),
            Self::Kept(output) | Self::Stored(output, _) => output.inline_bytes(),
        }
    }
}

impl Supervisor {
    /// Checks that the blobs of a task exist. This happens before the job requests a slot, so that a hanging store delays no other job.
    pub(super) async fn check_blobs(&self, task: &Task<'_>) -> Result<(), Ending> {
        for buffer in &task.buffers {
            let (Data::Blob(digest), Some(bytes)) = (&buffer.data, buffer.bytes()) else { continue };
            let store = self.blobs.as_ref().expect("a worker without a store has passed the job on");
            Box::pin(store.check(*digest, bytes)).await.map_err(|error| blobs::ending(blobs::failure(&error)))?;
        }
        Ok(())
    }

    /// Stores large outputs as blobs if the task asks for that.
    pub(super) async fn store_outputs(
        &self,
        task: &Task<'_>,
        outputs: Vec<JobOutput>,
    ) -> Result<Vec<JobOutput>, Ending> {
        let Some(store) = self.blobs.as_ref().filter(|_| task.large_outputs == LargeOutputs::Blob) else {
            return Ok(outputs);
        };
        let mut done = Vec::with_capacity(outputs.len());
        for output in outputs {
            done.push(Box::pin(stored(store, output)).await.map_err(|error| blobs::ending(blobs::failure(&error)))?);
        }
        // Small outputs are copied, because they would keep the job's whole staging memory from the next job.
        Ok(done.into_iter().map(JobOutput::kept).collect())
    }
}

/// Stores the output if it is large.
async fn stored(store: &BlobStore, output: JobOutput) -> Result<JobOutput, BlobError> {
    match output {
        JobOutput::Staged(OutputBytes { name, dtype, shape, bytes }) if is_large(bytes.len() as u64) => {
            let (length, lending) = (bytes.len(), bytes.lending());
            let data = OutputData::Blob(store.put(bytes).await?);
            lending.end();
            Ok(JobOutput::Stored(Output { name, dtype, shape, data }, length))
        }
        other => Ok(other),
    }
}

/// Whether the task needs a blob store.
pub(super) fn needs_store(task: &Task<'_>, encoding: Encoding) -> bool {
    let may_return_blobs = task.large_outputs == LargeOutputs::Blob;
    task.blob_bytes() > 0 || (may_return_blobs && reply_bytes(task, encoding, false).is_err())
}

/// The bytes of the outputs that the reply carries. An error if they exceed a message: then the job is refused before it runs.
pub(super) fn reply_bytes(task: &Task<'_>, encoding: Encoding, has_store: bool) -> Result<u64, Ending> {
    let stored = has_store && task.large_outputs == LargeOutputs::Blob;
    let outputs = task.outputs.iter().filter_map(|name| task.buffer(name)?.bytes());
    let inline = outputs.filter(|bytes| !(stored && is_large(*bytes)));
    let bytes = inline.fold(0, u64::saturating_add);
    let encoded = match encoding {
        Encoding::MessagePack => bytes,
        // Base64.
        Encoding::Json => bytes.saturating_mul(4) / 3,
    };
    let max = MESSAGE_BYTES_MAX as u64 - REPLY_OVERHEAD_BYTES;
    if encoded <= max {
        return Ok(bytes);
    }
    let message = format!(
        "the outputs take {} as {encoding}, but a reply carries at most {}; return fewer outputs, split the job, or return those from {} on \
         by claim check (a blob store, and \"large_outputs\": \"blob\" in the task)",
        Size(encoded),
        Size(max),
        Size(BLOB_BYTES_MIN)
    );
    Err(Ending::Failed(Failure::new(Verdict::User, FailureCode::OutputTooLarge, message)))
}

const fn is_large(bytes: u64) -> bool {
    bytes >= BLOB_BYTES_MIN
}
