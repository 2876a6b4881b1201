//! The executor: a child process that owns one device, and the supervisor's handle to it.
//!
//! The supervisor's side ([`handle`], [`process`], [`printer`], [`staging`], [`programs`]) never touches CUDA. The child's side ([`child`],
//! [`cuda`]) uses CUDA and the socket to its supervisor, and knows nothing of AMQP or Postgres. After an invalid memory access a CUDA
//! context is unusable until its process ends. That is why each context has a process of its own: the child reports the fault and exits,
//! and the supervisor starts another.
//!
//! | event | detected by | result for the job |
//! | --- | --- | --- |
//! | a kernel faults, alone on the device | the child, at the next call | `kernel_fault`, with the emulator's report if there is one |
//! | a kernel faults among neighbours | the same | each is [`RunError::Lost`] as a suspect, to run again alone |
//! | the child dies | end of file on the socket, then its exit status | [`RunError::Lost`] |
//! | a job exceeds its time limit | the supervisor, which kills the child | `time_limit`; its neighbours are lost but not suspected |
//! | a job of a train takes long | the supervisor, after some milliseconds | those behind it are released, to run elsewhere |
//! | the blob store fails while arrays move | the supervisor, which releases the job | `blob_unavailable`; no job is lost |
//! | the supervisor dies | end of file on the socket, and the kernel's parent-death signal | the child ends; the broker redelivers |

use std::{path::PathBuf, process::ExitCode};

mod attempt;
pub(crate) mod bounds;
mod bringing;
mod child;
mod clocks;
mod cubin;
mod cuda;
mod flight;
pub mod handle;
mod inputs;
mod link;
mod loss;
mod moves;
mod options;
mod outgoing;
mod phase;
mod pieces;
mod printer;
mod process;
mod programs;
mod progress;
mod ptx;
mod sent;
mod sizes;
pub mod spec;
pub mod staging;
mod storing;
mod train;
mod untrusted;

pub use handle::{Executor, ExecutorJob, Finished, InputUse};
pub use loss::{Loss, LostCause, RunError, StartError};
pub use options::ExecutorOptions;
pub use printer::Printout;
pub use programs::ProgramKey;
pub use progress::{JobProgress, Reached};
pub use spec::CudaSpec;
pub use staging::{FinishedOutput, OutputBytes};
pub use train::Rider;
pub(crate) use {attempt::code, options::VISIBLE_DEVICES, programs::Code, sizes::Sizes, staging::check_memory};

pub(crate) use self::{
    child::{ignore_signals, list_devices},
    cuda::{device::UNIFIED_MEMORY_NODE, library},
    link::{Incoming, receive},
    process::{ChildProcess, KillOnDrop},
};
pub use crate::ipc::message::{ComputeMode, DeviceInfo, MemoryReport};
use crate::own_executable;

/// The command line of an executor child. The child's socket is its standard input.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Ordinal of the device to own
    #[arg(long)]
    pub device: u32,
    /// CUDA driver to open
    #[arg(long)]
    pub cuda: CudaSpec,
    /// Number of jobs that run at once
    #[arg(long)]
    pub streams: usize,
    /// Device memory for all jobs together, in bytes; by default all there is
    #[arg(long)]
    pub memory_bytes_max: Option<u64>,
    /// Device memory for inputs that stay after their jobs, in bytes
    #[arg(long)]
    pub resident_bytes_max: u64,
    /// User to run as when started by root
    #[arg(long)]
    pub user: Option<String>,
}

/// Runs an executor child. Only `handle` starts one.
pub fn main(args: Args) -> ExitCode {
    own_executable::show_as("gpufleet-exec");
    child::main(&args)
}

/// Returns the path of the emulator beside this executable, if it exists. See [`CudaSpec::Emulated`].
pub fn emulator_library() -> Option<PathBuf> {
    spec::emulator_library()
}
