//! The definition of the worker's command line; `main` runs it.

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::{compiler, config, executor, exit, inventory, nvml, selftest};

#[derive(Debug, Parser)]
#[command(name = "gpufleet-worker", version, about = "Runs GPU jobs from RabbitMQ queues", after_long_help = exit::TABLE)]
pub struct Cli {
    #[command(subcommand)]
    pub role: Role,
}

#[derive(Debug, Subcommand)]
pub enum Role {
    /// Run jobs from the queues until SIGTERM or Ctrl-C
    ///
    /// The worker serves one or more pools with the devices of this machine. SIGTERM, Ctrl-C or `gpufleet workers drain` drains it: it takes no new
    /// jobs, and exits when its running jobs have ended.
    #[command(after_long_help = format!("{}\n\n{}", config::EXAMPLES, exit::TABLE))]
    Run(Box<config::Options>),
    /// Test a device and measure the cost of jobs on it; needs no broker
    #[command(after_long_help = exit::TABLE)]
    Selftest(selftest::Options),
    /// Compile CUDA C to PTX with NVRTC, as the worker does for jobs
    Compile(compiler::CompileOptions),
    /// The process that owns a device; only a worker starts it
    #[command(hide = true)]
    Executor(executor::Args),
    /// The process that lists the machine's devices; only a worker starts it
    #[command(hide = true)]
    DeviceList(inventory::Args),
    /// The process that reads NVML; only a worker starts it
    #[command(hide = true)]
    DeviceMonitor(nvml::Args),
    /// The process that runs NVRTC; only a worker starts it
    #[command(hide = true)]
    CompileChild,
}

/// The command line's definition, from which its reference page is generated.
pub fn command() -> clap::Command {
    Cli::command()
}
