//! Lays out a task in shared memory, and reads its outputs from there.

use std::{collections::HashMap, fmt, ops::Deref, ops::Range, sync::Arc};

use gpufleet_schema::{
    Arg, BlobDigest, Buffer, Data, Dtype, Failure, FailureCode, Inline, LargeOutputs, Launch, Number, Output,
    OutputData, Size, Task, Verdict,
    bounds::{BLOB_BYTES_MIN, BUFFERS_MAX, MESSAGE_BYTES_MAX},
};

use super::{pieces::Ring, storing::LeavingOutput};
use crate::{
    compiler::Compiled,
    ipc::{
        message::{ArgPlan, BufferPlan, Contents, JobPlan, LaunchPlan, OutputPlan},
        slab::{CHUNK_BYTES_MAX, Lending, StagingMemory},
    },
};

/// Alignment of buffers in bytes, so that vector copies are aligned on both sides.
const ALIGNMENT: u64 = 256;

/// Maximum total size of a job's large outputs that are staged, in bytes. If there are more, they go from the device to the blob store in
/// pieces. Staging frees the device earlier, and this size is small enough for the default number of jobs at once.
const STAGED_OUTPUT_BYTES_MAX: u64 = 64 << 20;

// Every job fits into a chunk: its inline inputs, the outputs that its reply carries, its staged large outputs, and the ring. A number in a
// message takes at least one byte, and at most eight here.
const _: () = assert!(
    (8 + 1) * MESSAGE_BYTES_MAX as u64 + STAGED_OUTPUT_BYTES_MAX + BUFFERS_MAX as u64 * ALIGNMENT + Ring::BYTES_MAX
        <= CHUNK_BYTES_MAX
);

/// An output of a job that succeeded.
#[derive(Debug, Clone)]
pub enum FinishedOutput {
    Staged(OutputBytes),
    /// Stored in the blob store, with its length in bytes.
    Stored(Output<'static>, u64),
}

/// An output buffer. Its bytes are still in the shared memory to which the device copied them; dropping this frees the memory.
#[derive(Debug, Clone)]
pub struct OutputBytes {
    pub name: String,
    pub dtype: Dtype,
    pub shape: Vec<u64>,
    pub bytes: StagedBytes,
}

/// Bytes in shared memory.
#[derive(Clone)]
pub struct StagedBytes {
    memory: Arc<StagingMemory>,
    range: Range<usize>,
}

/// The index and element type of each buffer, by its name.
type Buffers<'a> = HashMap<&'a str, (u32, Dtype)>;

/// The layout of a task's buffers in its staging memory.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The size of the staging memory, in bytes.
    pub bytes: u64,
    /// The offset of each buffer in bytes; `None` for a buffer that is not staged.
    offsets: Vec<Option<u64>>,
    /// The indices of the output buffers.
    outputs: Vec<usize>,
    /// The outputs that go from the device to the blob store.
    pub(super) leaving: Vec<LeavingOutput>,
}

impl Layout {
    /// Plans the staging memory of a checked task, without its blobs. If an output can't be sent, that is an error before the job runs.
    pub(super) fn of(task: &Task<'_>) -> Result<Self, Failure> {
        let index: HashMap<&str, usize> =
            task.buffers.iter().enumerate().map(|(index, buffer)| (buffer.name.as_str(), index)).collect();
        let outputs: Vec<usize> = task
            .outputs
            .iter()
            .map(|name| {
                index
                    .get(name.as_str())
                    .copied()
                    .ok_or_else(|| invalid(format!("outputs: the task has no buffer named {name:?}")))
            })
            .collect::<Result<_, _>>()?;
        check_outputs(task, &outputs)?;
        check_memory(task)?;
        let leaving = leaving(task, &outputs)?;
        let leaves = |index: usize| leaving.iter().any(|output| output.buffer as usize == index);
        let mut staged: Vec<bool> = task.buffers.iter().map(|buffer| matches!(buffer.data, Data::Inline(_))).collect();
        outputs.iter().filter(|output| !leaves(**output)).for_each(|output| staged[*output] = true);
        let mut bytes = 0_u64;
        let mut offsets = Vec::with_capacity(task.buffers.len());
        for (buffer, staged) in task.buffers.iter().zip(staged) {
            let size = size(buffer)?;
            offsets.push(staged.then_some(bytes));
            if staged {
                let end = bytes.checked_add(size).and_then(|end| end.checked_next_multiple_of(ALIGNMENT));
                bytes = end.ok_or_else(|| invalid("buffers: the total size overflows".to_owned()))?;
            }
        }
        Ok(Self { bytes, offsets, outputs, leaving })
    }

    /// Returns the shared memory for the arrays that move between the blob store and the device.
    pub(super) fn ring(&self, task: &Task<'_>) -> Option<Ring> {
        let inputs: Vec<u64> = task.buffers.iter().filter_map(Buffer::blob).map(|(_, bytes)| bytes).collect();
        let outputs: Vec<u64> = self.leaving.iter().map(|output| output.bytes).collect();
        Ring::of(&inputs, &outputs)
    }

    fn leaves(&self, buffer: usize) -> bool {
        self.leaving.iter().any(|output| output.buffer as usize == buffer)
    }

    /// Copies the task's bytes into memory, and returns the plan to send to the child. `compiled` has the symbols of its name expressions.
    pub(super) fn stage(
        &self,
        task: &Task<'_>,
        compiled: Option<&Compiled>,
        memory: &mut StagingMemory,
        job: u64,
    ) -> Result<JobPlan, Failure> {
        let mut buffers = Vec::with_capacity(task.buffers.len());
        for (buffer, offset) in task.buffers.iter().zip(&self.offsets) {
            buffers.push(BufferPlan { bytes: size(buffer)?, contents: contents(buffer, *offset, memory)? });
        }
        let counter = task.progress_total().map(|_| buffers.len() as u32);
        buffers.extend(counter.map(|_| BufferPlan { bytes: size_of::<u64>() as u64, contents: Contents::Zeros }));
        let by_name: Buffers<'_> =
            (0..).zip(&task.buffers).map(|(index, buffer)| (buffer.name.as_str(), (index, buffer.dtype))).collect();
        let symbol = |entry: &str| compiled.and_then(|compiled| compiled.symbols.get(entry)).map(String::as_str);
        let launches = task.launches.iter().map(|launch| {
            let symbol = symbol(&launch.entry).unwrap_or(&launch.entry);
            launch_plan(launch, symbol, &by_name, counter)
        });
        let launches = launches.collect::<Result<_, _>>()?;
        let outputs = self
            .outputs
            .iter()
            .filter(|buffer| !self.leaves(**buffer))
            .map(|buffer| OutputPlan {
                buffer: *buffer as u32,
                place: memory.place(self.offsets[*buffer].expect("every output was given a place")),
            })
            .collect();
        let leaving = self.leaving.iter().map(|output| output.buffer).collect();
        let (cache_bytes_max, prints) = (u64::MAX, false);
        Ok(JobPlan { job, program: 0, buffers, counter, launches, outputs, leaving, cache_bytes_max, prints })
    }

    /// Returns the outputs of a successful job. Those in `stored` are in the blob store.
    pub(super) fn outputs(
        &self,
        buffers: &[BufferHeader],
        memory: &Arc<StagingMemory>,
        stored: &[(u32, BlobDigest)],
    ) -> Result<Vec<FinishedOutput>, Failure> {
        let output = |index: &usize| {
            let buffer = &buffers[*index];
            if self.leaves(*index) {
                let stored = stored.iter().find(|(stored, _)| *stored as usize == *index);
                let (_, digest) = stored.ok_or_else(|| not_offered(&buffer.name))?;
                return Ok(buffer.stored_as(*digest));
            }
            let start = self.offsets[*index].expect("every output was given a place") as usize;
            Ok(FinishedOutput::Staged(OutputBytes {
                name: buffer.name.clone(),
                dtype: buffer.dtype,
                shape: buffer.shape.clone(),
                bytes: StagedBytes { memory: Arc::clone(memory), range: start..start + buffer.bytes },
            }))
        };
        self.outputs.iter().map(output).collect()
    }
}

/// A buffer without its bytes.
#[derive(Debug)]
pub(crate) struct BufferHeader {
    name: String,
    dtype: Dtype,
    shape: Vec<u64>,
    bytes: usize,
}

impl BufferHeader {
    pub(crate) fn of(task: &Task<'_>) -> Vec<Self> {
        let header = |buffer: &Buffer<'_>| Self {
            name: buffer.name.clone(),
            dtype: buffer.dtype,
            shape: buffer.shape.clone(),
            bytes: buffer.bytes().unwrap_or(0) as usize,
        };
        task.buffers.iter().map(header).collect()
    }

    fn stored_as(&self, digest: BlobDigest) -> FinishedOutput {
        let data = OutputData::Blob(digest);
        let output = Output { name: self.name.clone(), dtype: self.dtype, shape: self.shape.clone(), data };
        FinishedOutput::Stored(output, self.bytes as u64)
    }
}

/// Returns the failure of a job whose child did not offer all of its outputs.
fn not_offered(name: &str) -> Failure {
    let message = format!("the executor did not offer output {name:?}");
    Failure::new(Verdict::Infrastructure, FailureCode::Internal, message)
}

fn invalid(message: String) -> Failure {
    Failure::new(Verdict::User, FailureCode::InvalidTask, message)
}

fn size(buffer: &Buffer<'_>) -> Result<u64, Failure> {
    buffer.bytes().ok_or_else(|| invalid(format!("buffers.{}.shape: the size overflows", buffer.name)))
}

/// Checks that the outputs that the reply carries fit into it.
fn check_outputs(task: &Task<'_>, outputs: &[usize]) -> Result<(), Failure> {
    let carried = total(task, outputs, |bytes| !may_be_blob(task, bytes))?;
    let max = MESSAGE_BYTES_MAX as u64;
    if carried <= max {
        return Ok(());
    }
    let (carried, max) = (Size(carried), Size(max));
    let message = format!(
        "the outputs take {carried} in total, but a reply carries at most {max}; return less, or split the job"
    );
    Err(Failure::new(Verdict::User, FailureCode::OutputTooLarge, message))
}

/// Returns the outputs that go from the device to the blob store: all that may, if together they are too large to be staged.
fn leaving(task: &Task<'_>, outputs: &[usize]) -> Result<Vec<LeavingOutput>, Failure> {
    if total(task, outputs, |bytes| may_be_blob(task, bytes))? <= STAGED_OUTPUT_BYTES_MAX {
        return Ok(Vec::new());
    }
    let mut leaving = Vec::new();
    for output in outputs {
        let bytes = size(&task.buffers[*output])?;
        if may_be_blob(task, bytes) {
            leaving.push(LeavingOutput { buffer: *output as u32, bytes });
        }
    }
    Ok(leaving)
}

/// Returns the total size in bytes of the outputs for whose size `is_counted` is true.
fn total(task: &Task<'_>, outputs: &[usize], is_counted: impl Fn(u64) -> bool) -> Result<u64, Failure> {
    outputs.iter().try_fold(0, |sum: u64, output| {
        let bytes = size(&task.buffers[*output])?;
        Ok(if is_counted(bytes) { sum.saturating_add(bytes) } else { sum })
    })
}

fn may_be_blob(task: &Task<'_>, bytes: u64) -> bool {
    task.large_outputs == LargeOutputs::Blob && bytes >= BLOB_BYTES_MIN
}

/// Checks that the buffers do not exceed the task's own memory limit.
pub(crate) fn check_memory(task: &Task<'_>) -> Result<(), Failure> {
    let Some(limit) = task.limits.memory_bytes_max else { return Ok(()) };
    match task.device_bytes() {
        Some(wanted) if wanted <= limit => Ok(()),
        wanted => Err(Failure::new(
            Verdict::OutOfMemory,
            FailureCode::OutOfMemory,
            format!("the buffers need {} bytes, but limits.memory_bytes_max is {limit}", wanted.unwrap_or(u64::MAX)),
        )),
    }
}

fn contents(buffer: &Buffer<'_>, offset: Option<u64>, memory: &mut StagingMemory) -> Result<Contents, Failure> {
    match &buffer.data {
        Data::Zeros => Ok(Contents::Zeros),
        Data::Fill(number) => Ok(Contents::Pattern(element(*number, buffer.dtype, &buffer.name)?)),
        Data::Inline(inline) => {
            let offset = offset.expect("every inline buffer was given a place");
            copy(inline, buffer, memory, offset as usize)?;
            Ok(Contents::Staged(memory.place(offset)))
        }
        Data::Blob(digest) => Ok(Contents::Input { digest: *digest, share: buffer.share }),
        // The check of the task has already refused this.
        Data::Output(_) => Err(invalid(format!("buffers.{}.data: the output of another job", buffer.name))),
    }
}

fn element(number: Number, dtype: Dtype, name: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::with_capacity(dtype.size());
    number.write(dtype, &mut bytes).map_err(|problem| invalid(format!("{name}: {problem}")))?;
    Ok(bytes)
}

fn copy(inline: &Inline<'_>, buffer: &Buffer<'_>, memory: &mut StagingMemory, offset: usize) -> Result<(), Failure> {
    let (given, wanted) = (inline.resolved_len(buffer.dtype), size(buffer)? as usize);
    if given != wanted {
        return Err(invalid(format!(
            "buffers.{}.data: holds {given} bytes, but the shape needs {wanted}",
            buffer.name
        )));
    }
    let place = memory.bytes_mut(offset..offset + wanted);
    inline.copy_to(buffer.dtype, place).map_err(|problem| invalid(format!("buffers.{}.data: {problem}", buffer.name)))
}

fn launch_plan(
    launch: &Launch,
    symbol: &str,
    buffers: &Buffers<'_>,
    counter: Option<u32>,
) -> Result<LaunchPlan, Failure> {
    let args = launch.args.iter().map(|arg| arg_plan(arg, &launch.entry, buffers, counter));
    Ok(LaunchPlan {
        entry: launch.entry.clone(),
        symbol: symbol.to_owned(),
        grid: launch.grid.clone(),
        block: launch.block.clone(),
        shared_bytes: launch.shared_bytes,
        args: args.collect::<Result<_, _>>()?,
        repeat: launch.repeat,
        cooperative: launch.cooperative,
        cluster: launch.cluster.clone(),
    })
}

fn arg_plan(arg: &Arg, entry: &str, buffers: &Buffers<'_>, counter: Option<u32>) -> Result<ArgPlan, Failure> {
    let address = |name: &str, offset: u64| {
        let (buffer, dtype) =
            buffers.get(name).ok_or_else(|| invalid(format!("{entry}: the task has no buffer named {name:?}")))?;
        let offset = offset.checked_mul(dtype.size() as u64);
        let offset = offset.ok_or_else(|| invalid(format!("{entry}: the offset into {name:?} overflows")))?;
        Ok(ArgPlan::Buffer { buffer: *buffer, offset })
    };
    match arg {
        Arg::Buffer(name) => address(name, 0),
        Arg::BufferAt { name, offset } => address(name, *offset),
        Arg::Scalar(dtype, number) => {
            let bytes = element(*number, *dtype, entry)?;
            let mut bits = [0; 8];
            bits[..bytes.len()].copy_from_slice(&bytes);
            Ok(ArgPlan::Scalar { bits: u64::from_le_bytes(bits), size: bytes.len() as u8 })
        }
        Arg::Progress(_) => {
            let buffer = counter.expect("a task with such an argument has a counter");
            Ok(ArgPlan::Buffer { buffer, offset: 0 })
        }
        Arg::Bytes { bytes, align } => Ok(ArgPlan::Bytes { bytes: bytes.clone(), align: *align }),
    }
}

impl FinishedOutput {
    /// Returns the output unless it is in the blob store.
    pub fn staged(self) -> Option<OutputBytes> {
        match self {
            Self::Staged(output) => Some(output),
            Self::Stored(..) => None,
        }
    }
}

impl OutputBytes {
    /// Returns the output for a reply, with borrowed bytes.
    pub fn as_output(&self) -> Output<'_> {
        Output {
            name: self.name.clone(),
            dtype: self.dtype,
            shape: self.shape.clone(),
            data: Inline::from(&*self.bytes).into(),
        }
    }
}

impl Deref for StagedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.bytes(self.range.clone())
    }
}

impl StagedBytes {
    /// Marks these bytes as lent until the returned guard ends.
    pub fn lending(&self) -> Lending {
        self.memory.lending()
    }
}

impl AsRef<[u8]> for StagedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for StagedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.range.len())
    }
}

#[cfg(test)]
mod tests;
