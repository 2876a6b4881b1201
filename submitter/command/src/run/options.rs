//! The options of `gpufleet run`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::Args;
use gpufleet::{Job, schema::PoolName};

use super::{label, on_worker::HostOptions};
use crate::{
    environment, exit,
    job_options::JobOptions,
    json,
    options::{BlobOptions, ProducerOptions},
    requirements::ByteSize,
    spec,
};

/// Run a program with the GPU of a worker: on this machine, or with --on-worker on that of the worker
///
/// Without --on-worker, the command runs here, with its files, terminal and signals. Its CUDA driver calls run on a worker, which holds the device memory of
/// --memory until the command ends. Programs that use the driver API work unchanged, such as those of numba-cuda, PyCUDA, tinygrad and
/// cudarc. Programs that contain NVIDIA's CUDA runtime do not, such as those of PyTorch and CuPy.
///
/// With --on-worker, the command runs on the worker's machine, with a whole GPU, in an environment that the worker offers, such as one with
/// PyTorch. It has the files of --upload, and none of this machine's variables. Its output comes while it runs, the files of --download when
/// it has ended, and the exit code is the command's.
///
/// The command starts once a worker has the memory, or a whole GPU. Lines of gpufleet itself go to standard error and begin with `gpufleet:`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}\n\n{}", json::RUN_REPORT, exit::TABLE))]
#[command(mut_arg("pool", |arg| arg.help("Pool whose workers offer sessions or run host programs [default: default]")))]
#[command(mut_arg("device_name", |arg| arg.help("Use only a device whose name contains this text, such as H200")))]
#[command(mut_arg("min_memory", |arg| arg.help("Use only a device with at least this much memory, such as 40GiB")))]
#[command(mut_arg("compute_capability", |arg| arg.help("Use only a device of at least this compute capability, such as 8.0")))]
pub struct Options {
    /// Device memory to lease, such as 8GiB. The program sees a device with this much memory
    #[arg(long, value_name = "SIZE", value_parser = memory, required_unless_present = "on_worker", help_heading = "Session")]
    pub memory: Option<ByteSize>,
    /// Leases of --memory each, for as many processes that use the GPU at the same time [default: 1]
    #[arg(long, value_name = "N", value_parser = spec::whole(1..=SESSIONS_MAX), help_heading = "Session")]
    pub sessions: Option<u32>,
    /// Longest time for which the session is open or the command runs on the worker, such as 30m or 2h [default: set by the pool]
    #[arg(long, value_name = "DURATION", value_parser = spec::time_limit, help_heading = "Session")]
    pub time_limit: Option<Duration>,
    /// Longest time without a driver call or a running kernel [default: set by the pool]
    #[arg(long, value_name = "DURATION", value_parser = spec::time_limit, help_heading = "Session")]
    pub idle_limit: Option<Duration>,
    /// Longest time to wait for a worker [default: set by the pool, else none]
    #[arg(long, value_name = "DURATION", value_parser = spec::queue_limit, help_heading = "Session")]
    pub queue_limit: Option<Duration>,
    /// gpufleet's driver library [default: beside gpufleet, else in ../lib/gpufleet or /usr/lib/gpufleet]
    #[arg(long, value_name = "FILE", env = environment::SESSION_LIBRARY, help_heading = "Session")]
    pub library: Option<PathBuf>,

    #[command(flatten)]
    pub host: HostOptions,

    #[command(flatten)]
    pub job: JobOptions,

    /// Write how the session and the command ended to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print only errors and warnings
    #[arg(short, long)]
    pub quiet: bool,
    #[command(flatten)]
    pub producer: ProducerOptions,
    #[command(flatten)]
    pub blobs: BlobOptions,
    /// The command with its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// More processes than a worker takes sessions hardly ever share one program.
const SESSIONS_MAX: u32 = 256;

const EXAMPLES: &str = "\
Examples:
  gpufleet run --memory 512MiB -- python train.py
  gpufleet run --pool team-a --memory 8GiB --time-limit 1h -- python train.py --epochs 3
  Two programs, one after the other, in one session:
    gpufleet run --memory 2GiB -- sh -c 'python prepare.py && python train.py'
  Four processes at the same time:
    gpufleet run --memory 1GiB --sessions 4 -- pytest -n 4
  On the worker's machine, with the files of this folder:
    gpufleet run --on-worker --env torch --upload . --download 'out/**' -- python train.py
  The same without waiting:
    id=$(gpufleet run --on-worker --env torch --upload . --download 'out/**' --detach -- python train.py)
    gpufleet logs --follow $id; gpufleet fetch $id --dir results
  A report for a script:
    gpufleet run --memory 2GiB --report run.json -- ./simulate";

impl Options {
    pub fn pool(&self) -> PoolName {
        self.job.pool.clone().unwrap_or_default()
    }

    /// The job of one session, with a new id.
    pub fn request(&self) -> Job {
        let session = Job::session(label::of(&self.command), self.memory.map_or(0, |size| size.0)).pool(self.pool());
        let mut job = self.job.describe(session);
        if let Some(limit) = self.time_limit {
            job = job.time_limit(limit);
        }
        if let Some(limit) = self.idle_limit {
            job = job.idle_limit(limit);
        }
        if let Some(limit) = self.queue_limit {
            job = job.queue_limit(limit);
        }
        job
    }
}

fn memory(text: &str) -> Result<ByteSize, String> {
    match text.parse::<ByteSize>() {
        Ok(ByteSize(0)) => Err("a session needs device memory".to_owned()),
        parsed => parsed.map_err(|problem| problem.to_string()),
    }
}
