//! The worker's command line: what can be typed. `main` does what it says.

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::{compiler, config, executor, exit, inventory, nvml, selftest};

#[derive(Debug, Parser)]
#[command(name = "gpufleet-worker", version, about = "Runs GPU jobs from RabbitMQ", after_long_help = exit::TABLE)]
pub struct Cli {
    #[command(subcommand)]
    pub role: Role,
}

#[derive(Debug, Subcommand)]
pub enum Role {
    /// Take jobs and run them until SIGTERM or Ctrl-C
    Run(Box<config::Options>),
    /// Check that a device works, and measure what jobs cost on it; needs no broker
    Selftest(selftest::Options),
    /// Compile CUDA C to PTX with NVRTC, as the worker does for jobs
    Compile(compiler::CompileOptions),
    /// The process that owns a device; only a worker starts it
    #[command(hide = true)]
    Executor(executor::Args),
    /// The process that lists the machine's devices; only a worker starts it
    #[command(hide = true)]
    DeviceList(inventory::Args),
    /// The process that reads how the devices fare; only a worker starts it
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
