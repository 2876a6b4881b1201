//! The options of a job that `gpufleet submit` and `gpufleet run` have.

use clap::Args;
use gpufleet::{Job, schema::PoolName};

use super::{
    environment,
    requirements::{ByteSize, Capability},
    spec::{self, LabelSpec},
};

/// What the history calls a job, and where it may run.
#[derive(Debug, Args)]
pub struct JobOptions {
    /// Name of the job in the history
    #[arg(long, value_parser = spec::name, help_heading = "Job")]
    pub name: Option<String>,
    /// Label to find the job by. Repeatable
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Job")]
    pub label: Vec<LabelSpec>,
    /// Pool to run the job in [default: default]
    #[arg(long, env = environment::POOL, help_heading = "Job")]
    pub pool: Option<PoolName>,
    /// Run only on a device whose name contains this text, such as H200
    #[arg(long, value_name = "NAME", help_heading = "Job")]
    pub device_name: Option<String>,
    /// Run only on a device with at least this much memory, such as 40GiB
    #[arg(long, value_name = "SIZE", help_heading = "Job")]
    pub min_memory: Option<ByteSize>,
    /// Run only on a device of at least this compute capability, such as 8.0
    #[arg(long, value_name = "X.Y", help_heading = "Job")]
    pub compute_capability: Option<Capability>,
}

impl JobOptions {
    /// Returns the job with these options but the pool.
    pub fn describe(&self, mut job: Job) -> Job {
        if let Some(name) = &self.name {
            job = job.name(name);
        }
        for label in &self.label {
            job = job.label(&label.key, &label.value);
        }
        if let Some(device) = &self.device_name {
            job = job.requires_device(device);
        }
        if let Some(size) = self.min_memory {
            job = job.requires_memory(size.0);
        }
        if let Some(Capability { major, minor }) = self.compute_capability {
            job = job.requires_compute_capability(major, minor);
        }
        job
    }
}
