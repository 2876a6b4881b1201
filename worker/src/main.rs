//! The worker's command line: one binary, several roles.

use std::process::ExitCode;

use clap::Parser as _;
use gpufleet_worker::{
    command::{self, Cli, Role},
    compiler, config, executor, exit, inventory, nvml, privileges, selftest, supervisor, telemetry,
};

fn main() -> ExitCode {
    match Cli::parse().role {
        // Before a job runs, because the environment holds the broker's password.
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
    // On a thread of the runtime, like the jobs of a worker, so that the measurement includes the same cost.
    tokio::spawn(selftest::run(options)).await.expect("the self-test does not panic")
}

#[tokio::main]
async fn run(options: config::Options) -> ExitCode {
    telemetry::init(options.log_format);
    let config = match config::Config::try_from(options) {
        Ok(config) => config,
        Err(error) => command::command().error(clap::error::ErrorKind::ValueValidation, error).exit(),
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
