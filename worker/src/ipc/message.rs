//! The messages between the supervisor and an executor.

use gpufleet_schema::{BlobDigest, Block, Failure, Grid, Timings};
use serde::{Deserialize, Serialize};

use crate::compiler::Target;

/// A message from the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToExecutor {
    /// A memory file comes with this frame: map it, and pin it for its first job.
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
    Run(Run),
    /// Copy a piece of an input that the job wants from shared memory.
    Bring(Piece),
    /// Copy a piece of an output that the job offers to shared memory.
    Take(Piece),
    /// All inputs that the job wants are complete, or all outputs that it offers have been taken.
    Go {
        job: u64,
    },
    /// End the job, because it is not needed any more, an input can't be had, or an output can't be stored.
    Release {
        job: u64,
    },
    /// End the kernel of a job that exceeds its time limit, on the emulated device. Its report says where the threads were.
    Interrupt {
        job: u64,
    },
    /// Free memory that no job uses, and report the rest.
    GiveBack,
    /// Send a memory report.
    Measure,
    /// Finish the running jobs, then exit.
    Stop,
}

/// The number for work of an executor outside jobs.
pub const BETWEEN_JOBS: u64 = 0;

/// A message from the executor.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromExecutor {
    /// The first frame of an executor that has opened its device.
    Ready(DeviceInfo, MemoryReport),
    /// The only frame of an executor that can't work.
    Refused(Refusal),
    /// The executor's memory has grown, or the supervisor asked for a report. It comes before the answer of the job that caused the growth.
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
    /// The kernels of the job have ended, and it waits until its outputs that leave in pieces have been taken.
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
    /// An input has become resident, or it is not: there was no room for it, or it was evicted.
    Input {
        input: BlobDigest,
        bytes: u64,
        is_resident: bool,
    },
    /// In a driver call the job may have to wait for its neighbours' kernels, or for another call that waits for them, while no kernel of
    /// its own runs. Most jobs never wait. [`BETWEEN_JOBS`] stands for work outside jobs.
    Waits {
        job: u64,
    },
    /// The job no longer waits.
    GoesOn {
        job: u64,
    },
    /// A segment could not be pinned: copies from it are slower but correct.
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
    /// In the form of `nvidia-smi -L`: `GPU-…`.
    pub uuid: String,
    pub compute_capability: (u32, u32),
    pub memory_bytes: u64,
    /// The heap that a context takes once a kernel allocates memory. Zero if there is no context yet.
    pub heap_bytes: u64,
    pub multiprocessors: u32,
    /// 12080 for CUDA 12.8.
    pub driver_version: u32,
    /// The driver is the emulator, not a GPU's.
    pub emulated: bool,
    /// It runs cubins of its architecture. The emulator runs PTX alone.
    pub takes_cubins: bool,
    pub compute_mode: ComputeMode,
    /// The opened library.
    pub library: String,
}

/// How many processes may use a device, as set by its operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ComputeMode {
    Shared,
    /// One at a time.
    Exclusive,
    Prohibited,
}

/// A device's memory from the view of one executor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// The executor's memory for buffers and modules, of jobs and cached.
    pub held: u64,
    /// The part that no job uses.
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
    /// Dropping its privileges failed.
    Privileges {
        problem: String,
    },
}

/// Code in a form that the driver accepts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Image {
    Ptx(String),
    Cubin(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Compiled from one source: the executor tries the cubin first, and the PTX if the driver refuses the cubin.
    Both {
        #[serde(with = "serde_bytes")]
        cubin: Vec<u8>,
        ptx: String,
    },
}

impl DeviceInfo {
    /// The compile target for this device.
    pub fn target(&self) -> Target {
        Target { arch: self.compute_capability, cubin_for: self.takes_cubins.then_some(self.driver_version) }
    }

    /// Some GPU for tests of names.
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

/// One job, with known sizes and its bytes in shared memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub job: u64,
    pub program: u32,
    pub buffers: Vec<BufferPlan>,
    pub launches: Vec<LaunchPlan>,
    /// The outputs that are copied to shared memory.
    pub outputs: Vec<OutputPlan>,
    /// The outputs that leave in pieces, by the index of their buffer. The job offers them with [`FromExecutor::Offers`].
    pub leaving: Vec<u32>,
    /// The most memory that the executor may cache while this job runs.
    pub cache_bytes_max: u64,
    /// Its kernels may print. No other such job runs at the same time.
    pub prints: bool,
}

impl Run {
    /// Whether it has inputs from the blob store.
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
    /// As many bytes as the buffer has.
    Staged(Place),
    /// An input from the blob store. If it is resident, it is copied from device memory, or used there if the kernels only read it.
    /// Otherwise the executor asks for it with [`FromExecutor::Wants`].
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
    /// Its position in the buffer.
    pub offset: u64,
    pub bytes: u64,
    pub place: Place,
}

/// The position of a buffer's bytes in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub segment: u32,
    pub offset: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaunchPlan {
    /// The name in the task.
    pub entry: String,
    /// The name in the module, which differs if the entry is a C++ name expression.
    pub symbol: String,
    pub grid: Grid,
    pub block: Block,
    pub shared_bytes: u32,
    pub args: Vec<ArgPlan>,
    pub repeat: u32,
    pub cooperative: bool,
    /// Blocks of a cluster, x first; missing dimensions are one.
    pub cluster: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArgPlan {
    /// The device address of the buffer with this index, plus `offset` bytes.
    Buffer { buffer: u32, offset: u64 },
    /// The low `size` bytes of `bits`, little endian.
    Scalar { bits: u64, size: u8 },
    /// A structure as the device lays it out.
    Bytes {
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        align: u32,
    },
}

/// A buffer to copy back, by its index.
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
    /// The emulator's report.
    pub report: Option<String>,
    /// Whether the device caused the fault instead of a kernel.
    pub device: bool,
}
