//! Options for starting an executor.

use std::{env, path::PathBuf, process::Command, sync::Arc, time::Duration};

use super::CudaSpec;
use crate::{compiler::Compiler, own_executable};

/// Time limit for starting an executor. Loading a driver and creating a context takes up to two seconds on a large machine, and far longer
/// if the kernel module is not loaded yet.
pub const READY_DEADLINE: Duration = Duration::from_secs(60);
/// Default number of jobs on the device at once: one copies in, one computes, one copies out, and one is ready to follow.
pub const STREAMS_DEFAULT: usize = 4;
/// Maximum number of streams for jobs. The hardware has 32 queues, and streams that share a queue wait for each other.
pub const STREAMS_MAX: usize = 32 - OTHER_STREAMS;
/// Number of other streams: that of the thread that reads the socket, and that of the thread that copies pieces of large arrays.
const OTHER_STREAMS: usize = 2;
/// The driver's environment variable for the number of queues of a process; its default is eight.
const MAX_CONNECTIONS: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
const MAX_CONNECTIONS_DEFAULT: usize = 8;
/// The driver's environment variable for the devices that a process sees.
pub(crate) const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// Options for starting an executor.
#[derive(Debug, Clone)]
pub struct ExecutorOptions {
    /// The device's number, for the log and, unless there is a `uuid`, for the driver.
    pub device: u32,
    /// The device's UUID as in `nvidia-smi -L`. With it, the child sees only this device. A MIG slice can only be selected by UUID.
    pub uuid: Option<String>,
    pub cuda: CudaSpec,
    /// Number of jobs that run on the device at once, 1 to [`STREAMS_MAX`].
    pub streams: usize,
    /// Maximum device memory for all jobs together, in bytes; unlimited by default.
    pub memory_bytes_max: Option<u64>,
    /// Maximum device memory for inputs that stay after their jobs, in bytes. They give way to jobs, and to other pools.
    pub resident_bytes_max: u64,
    pub ready_deadline: Duration,
    /// The user of the child if the worker is root: a name or a number; `nobody` by default.
    pub user: Option<String>,
    /// Compiles the CUDA C of jobs. Executors may share a compiler with its cache.
    pub compiler: Arc<Compiler>,
    /// The worker's executable; by default the running one.
    pub executable: Option<PathBuf>,
    /// Variables to set for the child, such as the emulator's.
    pub environment: Vec<(String, String)>,
}

impl ExecutorOptions {
    /// Returns the default options, with a compiler of their own.
    pub fn new(device: u32, cuda: CudaSpec) -> Self {
        Self {
            device,
            uuid: None,
            cuda,
            streams: STREAMS_DEFAULT,
            memory_bytes_max: None,
            resident_bytes_max: u64::MAX,
            ready_deadline: READY_DEADLINE,
            user: None,
            compiler: Arc::new(Compiler::new(None)),
            executable: None,
            environment: Vec::new(),
        }
    }

    pub(super) fn streams(&self) -> usize {
        self.streams.clamp(1, STREAMS_MAX)
    }
}

fn connections(streams: usize) -> usize {
    (streams + OTHER_STREAMS).max(MAX_CONNECTIONS_DEFAULT)
}

pub(super) fn command(options: &ExecutorOptions) -> Command {
    let mut command = own_executable::command(options.executable.as_deref(), "executor");
    match &options.uuid {
        // The child sees only this device, as number 0.
        Some(uuid) => command.env(VISIBLE_DEVICES, uuid).arg("--device").arg("0"),
        None => command.arg("--device").arg(options.device.to_string()),
    };
    if env::var_os(MAX_CONNECTIONS).is_none() {
        command.env(MAX_CONNECTIONS, connections(options.streams()).to_string());
    }
    command.arg("--cuda").arg(options.cuda.to_string());
    command.arg("--streams").arg(options.streams().to_string());
    if let Some(bytes) = options.memory_bytes_max {
        command.arg("--memory-bytes-max").arg(bytes.to_string());
    }
    command.arg("--resident-bytes-max").arg(options.resident_bytes_max.to_string());
    if let Some(user) = &options.user {
        command.arg("--user").arg(user);
    }
    command.envs(options.environment.iter().map(|(name, value)| (name, value)));
    command
}
