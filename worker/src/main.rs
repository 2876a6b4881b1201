//! The worker's command line: one binary, several roles.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use gpufleet_worker::{compiler, config, executor, exit, inventory, nvml, privileges, selftest, supervisor, telemetry};

#[derive(Debug, Parser)]
#[command(name = "gpufleet-worker", version, about = "Runs GPU jobs from RabbitMQ", after_long_help = exit::TABLE)]
struct Cli {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
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

fn main() -> ExitCode {
    match Cli::parse().role {
        // Before anything of a stranger's runs: the environment has the broker's password.
        Role::Run(options) => match privileges::hide() {
            Ok(()) => run(*options),
            Err(error) => {
                eprintln!("error: failed to {error}");
                ExitCode::FAILURE
            }
        },
        Role::Selftest(options) => check(options),
        Role::Compile(options) => compiler::compile_file(&options),
        Role::Executor(args) => executor::main(args),
        Role::DeviceList(args) => inventory::main(&args),
        Role::DeviceMonitor(args) => nvml::main(&args),
        Role::CompileChild => compiler::main(),
    }
}

#[tokio::main]
async fn check(options: selftest::Options) -> ExitCode {
    // A task of the runtime's own threads, as a worker's jobs are: what is measured is then what they pay.
    tokio::spawn(selftest::run(options)).await.expect("a self-test that panics has said so")
}

#[tokio::main]
async fn run(options: config::Options) -> ExitCode {
    telemetry::init(options.log_format);
    let config = match config::Config::try_from(options) {
        Ok(config) => config,
        Err(error) => Cli::command().error(clap::error::ErrorKind::ValueValidation, error).exit(),
    };
    tracing::info!(version = env!("CARGO_PKG_VERSION"), ?config, "starting");
    match supervisor::run(config).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            exit::code(&error)
        }
    }
}
