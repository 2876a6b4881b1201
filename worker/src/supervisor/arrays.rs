//! Arrays in the blob store: inputs that tasks reference, and large outputs that the worker stores.

use futures::future::try_join_all;
use gpufleet_schema::{
    BlobDigest, Buffer, Encoding, Failure, FailureCode, Inline, KeptData, KeptOutput, KeptOutputs, LargeOutputs,
    Output, OutputData, Size, Task, Verdict,
    bounds::{BLOB_BYTES_MIN, KEPT_INLINE_BYTES_MAX, MESSAGE_BYTES_MAX},
};

use gpufleet_blobs::{BlobError, BlobStore};

use super::{Supervisor, clock::unix_ms};
use crate::{
    blobs,
    disposition::Ending,
    executor::{FinishedOutput, OutputBytes},
    scheduler::PoolId,
};

/// An output of a successful job.
#[derive(Debug)]
pub(super) enum JobOutput {
    /// Still in the executor's staging memory.
    Staged(OutputBytes),
    /// Copied from staging memory, because the reply waits for other jobs of its message.
    Copied(Output<'static>),
    /// In the blob store, with its length in bytes.
    Stored(Output<'static>, u64),
}

/// Maximum size of a reply without its outputs (names, timings, a failure's text and printed text), in bytes.
const REPLY_OVERHEAD_BYTES: u64 = 256 << 10;

impl JobOutput {
    pub(super) fn as_output(&self) -> Output<'_> {
        match self {
            Self::Staged(output) => output.as_output(),
            Self::Copied(output) | Self::Stored(output, _) => output.borrowed(),
        }
    }

    /// Returns the output without staging memory, copying it if it is still staged.
    pub(super) fn copied(self) -> Self {
        match self {
            Self::Staged(output) => Self::Copied(output.as_output().into_owned()),
            other => other,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Stored(_, bytes) => *bytes,
            other => other.inline_bytes() as u64,
        }
    }

    /// Returns the digest of an output in the blob store.
    fn digest(&self) -> Option<BlobDigest> {
        match self {
            Self::Stored(Output { data: OutputData::Blob(digest), .. }, _) => Some(*digest),
            _ => None,
        }
    }

    /// Copies the output as little-endian elements.
    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Staged(output) => output.bytes.to_vec(),
            Self::Copied(Output { data: OutputData::Inline(Inline::Bytes(bytes)), .. }) => bytes.to_vec(),
            Self::Copied(_) | Self::Stored(..) => {
                unreachable!("only bytes are copied, and those of a blob are in the store")
            }
        }
    }

    /// Returns the output's size in a message, in bytes.
    pub(super) fn inline_bytes(&self) -> usize {
        match self {
            Self::Staged(output) => output.bytes.len(),
            Self::Copied(output) | Self::Stored(output, _) => output.inline_bytes(),
        }
    }
}

impl From<FinishedOutput> for JobOutput {
    fn from(output: FinishedOutput) -> Self {
        match output {
            FinishedOutput::Staged(output) => Self::Staged(output),
            FinishedOutput::Stored(output, bytes) => Self::Stored(output, bytes),
        }
    }
}

impl Supervisor {
    /// Checks that the blobs of a task exist, except those that are on a device. This happens before the job requests a slot, so that a
    /// hanging store delays no other job.
    pub(super) async fn check_blobs(&self, task: &Task<'_>, pool: PoolId) -> Result<(), Ending> {
        let store = self.blobs.as_ref().expect("a worker without a store has passed the job on");
        let blobs = task.buffers.iter().filter_map(Buffer::blob);
        let unknown =
            blobs.filter(|(digest, bytes)| !self.devices.iter().any(|device| device.has_input(pool, *digest, *bytes)));
        let checks = unknown.map(|(digest, bytes)| Box::pin(store.check(digest, bytes)));
        try_join_all(checks).await.map_err(|error| blobs::ending(blobs::failure(&error)))?;
        Ok(())
    }

    /// Returns whether outputs of the task may go to the blob store, which takes time.
    pub(super) fn stores_outputs(&self, task: &Task<'_>) -> bool {
        self.blobs.is_some() && (task.large_outputs == LargeOutputs::Blob || keeps_blobs(task))
    }

    /// Stores large outputs as blobs, and keeps the outputs if the task asks for it.
    pub(super) async fn store_outputs(
        &self,
        task: &Task<'_>,
        outputs: Vec<JobOutput>,
    ) -> Result<(Vec<JobOutput>, Option<KeptOutputs>), Ending> {
        let unavailable = |error: BlobError| blobs::ending(blobs::failure(&error));
        let outputs = match self.blobs.as_ref().filter(|_| task.large_outputs == LargeOutputs::Blob) {
            Some(store) => Box::pin(with_blobs(store, outputs)).await.map_err(unavailable)?,
            None => outputs,
        };
        let kept = match task.keep_ms {
            Some(keep_ms) => Some(Box::pin(self.keep(task, &outputs, keep_ms)).await.map_err(unavailable)?),
            None => None,
        };
        Ok((outputs, kept))
    }

    /// Keeps the outputs of a job: small ones in the event of its end, others in the blob store.
    async fn keep(&self, task: &Task<'_>, outputs: &[JobOutput], keep_ms: u64) -> Result<KeptOutputs, BlobError> {
        let keeps_blobs = keeps_blobs(task);
        let keep_one = async |output: &JobOutput| {
            let data = match output.digest() {
                Some(digest) => KeptData::Blob(digest),
                None if keeps_blobs => {
                    let store = self.blobs.as_ref().expect("a worker without a store has passed the job on");
                    KeptData::Blob(put(store, output).await?)
                }
                None => KeptData::Inline(output.to_bytes()),
            };
            let Output { name, dtype, shape, .. } = output.as_output();
            Ok::<_, BlobError>(KeptOutput { name, dtype, shape, data })
        };
        let outputs = try_join_all(outputs.iter().map(keep_one)).await?;
        Ok(KeptOutputs { expires_ms: unix_ms().saturating_add_unsigned(keep_ms), outputs })
    }
}

/// Stores the large outputs, all at the same time, and copies the others, because they would withhold the job's whole staging memory from
/// the next job.
async fn with_blobs(store: &BlobStore, outputs: Vec<JobOutput>) -> Result<Vec<JobOutput>, BlobError> {
    let stored = try_join_all(outputs.into_iter().map(|output| Box::pin(stored(store, output)))).await?;
    Ok(stored.into_iter().map(JobOutput::copied).collect())
}

/// Stores an output that the reply carries too.
async fn put(store: &BlobStore, output: &JobOutput) -> Result<BlobDigest, BlobError> {
    let JobOutput::Staged(OutputBytes { bytes, .. }) = output else { return store.put(output.to_bytes()).await };
    let lending = bytes.lending();
    let digest = store.put_shared(bytes.clone()).await?;
    lending.end();
    Ok(digest)
}

/// Stores the output if it is large, and returns it unchanged otherwise.
async fn stored(store: &BlobStore, output: JobOutput) -> Result<JobOutput, BlobError> {
    match output {
        JobOutput::Staged(OutputBytes { name, dtype, shape, bytes }) if is_large(bytes.len() as u64) => {
            let (length, lending) = (bytes.len() as u64, bytes.lending());
            let data = OutputData::Blob(store.put_shared(bytes).await?);
            lending.end();
            Ok(JobOutput::Stored(Output { name, dtype, shape, data }, length))
        }
        other => Ok(other),
    }
}

/// Returns whether the task needs a blob store.
pub(super) fn needs_store(task: &Task<'_>, encoding: Encoding) -> bool {
    let may_return_blobs = task.large_outputs == LargeOutputs::Blob;
    task.blob_bytes() > 0 || keeps_blobs(task) || (may_return_blobs && reply_bytes(task, encoding, false).is_err())
}

/// Returns whether the outputs that the task asks to keep are too large for the ledger.
fn keeps_blobs(task: &Task<'_>) -> bool {
    task.keep_ms.is_some() && task.output_bytes() > KEPT_INLINE_BYTES_MAX
}

/// Returns the size of the outputs that the ledger keeps, in bytes.
pub(super) fn kept_inline_bytes(task: &Task<'_>) -> u64 {
    if task.keep_ms.is_some() && !keeps_blobs(task) { task.output_bytes() } else { 0 }
}

/// Returns the size of the outputs that the reply carries, in bytes. If they exceed a message, that is an error, and the job is refused
/// before it runs.
pub(super) fn reply_bytes(task: &Task<'_>, encoding: Encoding, has_store: bool) -> Result<u64, Ending> {
    let stored = has_store && task.large_outputs == LargeOutputs::Blob;
    let outputs = task.outputs.iter().filter_map(|name| task.buffer(name)?.bytes());
    let inline = outputs.filter(|bytes| !(stored && is_large(*bytes)));
    let bytes = inline.fold(0, u64::saturating_add);
    let encoded = match encoding {
        Encoding::MessagePack => bytes,
        // JSON carries them in Base64.
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
