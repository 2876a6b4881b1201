//! The messages themselves.

use gpufleet_schema::{Block, Failure, Grid, Timings};
use serde::{Deserialize, Serialize};

use crate::compiler::Target;

/// What the supervisor says.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToExecutor {
    /// A memory file comes with this frame: map it, pin it for its first job, keep it.
    Segment {
        segment: u32,
        bytes: u64,
    },
    DropSegment {
        segment: u32,
    },
    /// Code that jobs will name. It is loaded by the first of them.
    Program {
        program: u32,
        image: Image,
    },
    ForgetProgram {
        program: u32,
    },
    Run(Run),
    /// Give back what no job has, and say what is left.
    GiveBack,
    /// Say how much memory there is.
    Measure,
    /// Finish what runs, then exit.
    Stop,
}

/// No job's number, for what an executor does for none.
pub const BETWEEN_JOBS: u64 = 0;

/// What the executor says.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromExecutor {
    /// The first frame of an executor that works.
    Ready(DeviceInfo, MemoryReport),
    /// The only frame of one that can't.
    Refused(Refusal),
    /// What it has of the device has grown, or was asked for. It comes before the answer of the job that left something behind.
    Memory(MemoryReport),
    Finished {
        job: u64,
        outcome: Result<(), Failure>,
        timings: Timings,
    },
    /// The job may have to wait for its neighbours' kernels, or for somebody who does: at a call of the driver, while no kernel of its own
    /// runs. Most jobs never have to. [`BETWEEN_JOBS`] says the same of what was asked for beside jobs.
    Waits {
        job: u64,
    },
    /// It no longer has to.
    GoesOn {
        job: u64,
    },
    /// A segment could not be pinned: copies from it are slower, and are still right.
    Unpinned {
        segment: u32,
        reason: String,
    },
    /// The last frame of an executor whose context is beyond use. Whoever is still in flight has no result.
    Poisoned(Poison),
}

/// The device that an executor owns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    pub ordinal: u32,
    pub name: String,
    /// As `nvidia-smi -L` writes it: `GPU-…`.
    pub uuid: String,
    pub compute_capability: (u32, u32),
    pub memory_bytes: u64,
    /// What a context takes of it once a kernel allocates by itself: the heap. Zero where there is no context yet.
    pub heap_bytes: u64,
    pub multiprocessors: u32,
    /// 12080 for CUDA 12.8.
    pub driver_version: u32,
    /// The driver is the emulator, not a GPU's.
    pub emulated: bool,
    /// It runs cubins of its architecture. The emulator runs PTX alone.
    pub takes_cubins: bool,
    pub compute_mode: ComputeMode,
    /// The library that was opened.
    pub library: String,
}

/// How many processes a device lets in, by its operator's will.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ComputeMode {
    Shared,
    /// One at a time.
    Exclusive,
    Prohibited,
}

/// A device's memory, as one executor sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// What the executor has for buffers and modules, of jobs and kept.
    pub held: u64,
    /// The part of that which no job has.
    pub kept: u64,
    /// What nobody has, by the driver.
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
    /// It still has rights that it should not have.
    Privileges {
        problem: String,
    },
}

/// Code in the form in which the driver takes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Image {
    Ptx(String),
    Cubin(#[serde(with = "serde_bytes")] Vec<u8>),
    /// What our own compiler made of one source: the cubin comes first, and the PTX is for a driver that refuses it.
    Both {
        #[serde(with = "serde_bytes")]
        cubin: Vec<u8>,
        ptx: String,
    },
}

impl DeviceInfo {
    /// What code for this device is compiled to.
    pub fn target(&self) -> Target {
        Target { arch: self.compute_capability, cubin_for: self.takes_cubins.then_some(self.driver_version) }
    }

    /// Some GPU, of which a test looks only at how it is named.
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

/// One job, its sizes known and its bytes in place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub job: u64,
    pub program: u32,
    pub buffers: Vec<BufferPlan>,
    pub launches: Vec<LaunchPlan>,
    pub outputs: Vec<OutputPlan>,
    /// What the executor may keep for later jobs while this one runs.
    pub kept_max: u64,
    /// Its kernels may print. No other such job runs meanwhile.
    pub prints: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BufferPlan {
    pub bytes: u64,
    pub contents: Contents,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Contents {
    Zeros,
    /// One element, little endian, over and over.
    Pattern(#[serde(with = "serde_bytes")] Vec<u8>),
    /// As many bytes as the buffer has.
    Staged(Place),
}

/// Where bytes lie in shared memory. Their number is that of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub segment: u32,
    pub offset: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaunchPlan {
    /// As the task names it.
    pub entry: String,
    /// Its name in the module: another where the entry is a C++ name expression.
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
    /// The device address of the buffer with this index, and so many bytes further.
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

/// A fault that no later call on the context survives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Poison {
    pub code: u32,
    pub name: String,
    pub text: String,
    /// The job whose stream showed the fault first, if one did. Only alone is it known to be the one to blame.
    pub seen_by: Option<u64>,
    /// The kernel to blame, where the emulator says so. A GPU's driver does not.
    pub kernel: Option<String>,
    /// The emulator's account of it.
    pub report: Option<String>,
    /// The device is to blame and not a kernel.
    pub device: bool,
}
