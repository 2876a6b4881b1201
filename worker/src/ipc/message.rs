//! The messages between the supervisor and an executor.

use gpufleet_schema::{BlobDigest, Block, Failure, Grid, Timings};
use serde::{Deserialize, Serialize};

use crate::compiler::Target;

/// A message from the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToExecutor {
    /// A memory file is attached to this frame: map it, and pin it at its first job.
    Segment {
        segment: u32,
        bytes: u64,
    },
    DropSegment {
        segment: u32,
    },
    /// The code of a program. The first job that uses it loads it.
    Program {
        program: u32,
        image: Image,
    },
    ForgetProgram {
        program: u32,
    },
    /// Run these jobs on one stream, one after the other.
    Run(Vec<JobPlan>),
    /// Release those of these jobs that have not begun, and answer those that have ended.
    Disband {
        jobs: Vec<u64>,
    },
    /// Copy a piece of an input from shared memory to the job's memory.
    Bring(Piece),
    /// Copy a piece of an output from the job's memory to shared memory.
    Take(Piece),
    /// Let the job continue: all inputs that it requested are complete, or all outputs that it offered have been read.
    Go {
        job: u64,
    },
    /// End the job, because it is no longer needed, an input can't be fetched, or an output can't be stored.
    Release {
        job: u64,
    },
    /// End the kernel of a job that exceeds its time limit, on the emulated device. Its report shows where the threads were.
    Interrupt {
        job: u64,
    },
    /// Report how far a job is, if its kernels have been enqueued.
    Look {
        job: u64,
    },
    /// Free memory that no job uses, and report the rest.
    GiveBack,
    /// Send a memory report.
    Measure,
    /// Finish the running jobs, then exit.
    Stop,
}

/// The job number that stands for an executor's work between jobs.
pub const BETWEEN_JOBS: u64 = 0;

/// A message from the executor.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromExecutor {
    /// The first frame of an executor that has opened its device.
    Ready(DeviceInfo, MemoryReport),
    /// The only frame of an executor that can't work.
    Refused(Refusal),
    /// A memory report, sent because the executor's memory has grown or the supervisor requested it. It precedes the answer of the job that
    /// caused the growth.
    Memory(MemoryReport),
    Finished {
        job: u64,
        outcome: Result<(), Failure>,
        timings: Timings,
    },
    /// The job has its memory, and waits for the contents of these buffers.
    Wants {
        job: u64,
        buffers: Vec<u32>,
    },
    /// The kernels of the job have ended. It waits until the supervisor has read those outputs that leave in pieces.
    Offers {
        job: u64,
    },
    /// The answer to a piece.
    Copied {
        job: u64,
        buffer: u32,
        outcome: Result<(), Failure>,
    },
    /// The answer to a job that was released. It has no outcome.
    Released {
        job: u64,
    },
    /// Reports whether an input is resident. It is not if there was no room for it or it was evicted.
    Input {
        input: BlobDigest,
        bytes: u64,
        is_resident: bool,
    },
    /// The job may be waiting in a driver call for its neighbours' kernels, or for another call that waits for them, while none of its own
    /// kernels run. Most jobs never wait. [`BETWEEN_JOBS`] stands for work between jobs.
    Waits {
        job: u64,
    },
    /// The job no longer waits.
    GoesOn {
        job: u64,
    },
    /// How far a job is: its launches that are known to have ended, repeats counted singly, and the value of its counter.
    Progress {
        job: u64,
        launched: u64,
        counter: Option<u64>,
    },
    /// A segment could not be pinned. Copies from it are slower but correct.
    Unpinned {
        segment: u32,
        reason: String,
    },
    /// The last frame of an executor whose context is unusable. Jobs still in flight have no result.
    Poisoned(Poison),
}

/// The device that an executor owns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    pub ordinal: u32,
    pub name: String,
    /// The UUID as `nvidia-smi -L` writes it: `GPU-…`.
    pub uuid: String,
    pub compute_capability: (u32, u32),
    pub memory_bytes: u64,
    /// The heap that a context takes once a kernel allocates memory, in bytes. Zero if there is no context yet.
    pub heap_bytes: u64,
    pub multiprocessors: u32,
    /// The driver's CUDA version; 12080 means CUDA 12.8.
    pub driver_version: u32,
    /// Whether the driver is the emulator.
    pub emulated: bool,
    /// Whether the device runs cubins of its architecture. The emulator runs only PTX.
    pub takes_cubins: bool,
    pub compute_mode: ComputeMode,
    /// The driver library that was opened.
    pub library: String,
}

/// How many processes may use a device, as set by its operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ComputeMode {
    Shared,
    /// One process at a time.
    Exclusive,
    Prohibited,
}

/// The memory of a device as one executor sees it, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// The executor's memory for buffers and modules, in use by jobs or cached.
    pub held: u64,
    /// The part of `held` that no job uses.
    pub cached: u64,
    /// The device's free memory according to the driver.
    pub free: u64,
}

/// Why an executor can't work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    NoDriver {
        hint: String,
    },
    NoDevice {
        ordinal: u32,
        devices: u32,
    },
    Driver {
        call: String,
        code: u32,
        name: String,
    },
    /// The executor could not drop its privileges.
    Privileges {
        problem: String,
    },
}

/// A program in a form that the driver accepts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Image {
    Ptx(String),
    Cubin(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Both forms, compiled from one source. The executor tries the cubin first, and the PTX if the driver refuses the cubin.
    Both {
        #[serde(with = "serde_bytes")]
        cubin: Vec<u8>,
        ptx: String,
    },
}

impl DeviceInfo {
    /// Returns the compile target for this device.
    pub fn target(&self) -> Target {
        Target { arch: self.compute_capability, cubin_for: self.takes_cubins.then_some(self.driver_version) }
    }

    /// Creates a GPU for tests of device names.
    #[cfg(test)]
    pub(crate) fn named(ordinal: u32, uuid: &str) -> Self {
        Self {
            ordinal,
            name: "a GPU".into(),
            uuid: uuid.into(),
            compute_capability: (9, 0),
            memory_bytes: 1,
            heap_bytes: 0,
            multiprocessors: 1,
            driver_version: 12080,
            emulated: false,
            takes_cubins: true,
            compute_mode: ComputeMode::Shared,
            library: "libcuda.so.1".into(),
        }
    }
}

/// One job, with known sizes and with its bytes in shared memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobPlan {
    pub job: u64,
    pub program: u32,
    pub buffers: Vec<BufferPlan>,
    /// The index of the buffer that has the job's progress counter.
    pub counter: Option<u32>,
    pub launches: Vec<LaunchPlan>,
    /// The outputs that are copied to shared memory.
    pub outputs: Vec<OutputPlan>,
    /// The outputs that leave in pieces, by the index of their buffer. The job offers them with [`FromExecutor::Offers`].
    pub leaving: Vec<u32>,
    /// Maximum memory that the executor may cache while this job runs, in bytes.
    pub cache_bytes_max: u64,
    /// Whether its kernels may print. No other such job runs at the same time.
    pub prints: bool,
}

impl JobPlan {
    /// Returns whether the job has inputs from the blob store.
    pub fn has_inputs(&self) -> bool {
        self.buffers.iter().any(|buffer| matches!(buffer.contents, Contents::Input { .. }))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BufferPlan {
    pub bytes: u64,
    pub contents: Contents,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Contents {
    Zeros,
    /// One repeated element, little endian.
    Pattern(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Bytes in shared memory, as many as the buffer has.
    Staged(Place),
    /// An input from the blob store. If it is resident, it is copied on the device, or used in place if the kernels only read it. Otherwise
    /// the executor requests it with [`FromExecutor::Wants`].
    Input {
        digest: BlobDigest,
        share: bool,
    },
}

/// A piece of a buffer, in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    pub job: u64,
    pub buffer: u32,
    /// The piece's position in the buffer, in bytes.
    pub offset: u64,
    pub bytes: u64,
    pub place: Place,
}

/// A position in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub segment: u32,
    pub offset: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaunchPlan {
    /// The kernel's name in the task.
    pub entry: String,
    /// The kernel's name in the module, which differs if the entry is a C++ name expression.
    pub symbol: String,
    pub grid: Grid,
    pub block: Block,
    pub shared_bytes: u32,
    pub args: Vec<ArgPlan>,
    pub repeat: u32,
    pub cooperative: bool,
    /// The size of a cluster in blocks, x first; missing dimensions are one.
    pub cluster: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArgPlan {
    /// The device address of the buffer with this index, plus `offset` bytes.
    Buffer { buffer: u32, offset: u64 },
    /// The low `size` bytes of `bits`, in little-endian order.
    Scalar { bits: u64, size: u8 },
    /// The bytes of a structure, laid out as on the device.
    Bytes {
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        align: u32,
    },
}

/// An output buffer to copy to shared memory, by its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPlan {
    pub buffer: u32,
    pub place: Place,
}

/// A fault after which every call on the context fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Poison {
    pub code: u32,
    pub name: String,
    pub text: String,
    /// The job whose stream reported the fault first, if any. It is certainly the cause only if it ran alone.
    pub seen_by: Option<u64>,
    /// The kernel that caused the fault, if the emulator reports it. A GPU's driver does not.
    pub kernel: Option<String>,
    /// The emulator's report of the fault.
    pub report: Option<String>,
    /// Whether the device, and not a kernel, caused the fault.
    pub device: bool,
}
