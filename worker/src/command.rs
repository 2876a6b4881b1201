//! The worker's command line: one binary with several roles.

use std::{io, process::ExitCode};

use clap::{CommandFactory as _, Parser, Subcommand};
use tokio::runtime::{self, Runtime};

use crate::{
    compiler, config, executor, exit, inventory, nvml, privileges, program, selftest, session, supervisor, telemetry,
};

#[derive(Debug, Parser)]
#[command(name = "gpufleet-worker", version, about = "Runs GPU jobs from RabbitMQ queues", after_long_help = exit::TABLE)]
struct Cli {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
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
    /// The process to which the client of a session connects; only a worker starts it
    #[command(hide = true)]
    Session(session::GateArgs),
    /// The process that makes a program's driver calls; only a session starts it
    #[command(hide = true)]
    SessionEngine(session::EngineArgs),
    /// The process that guards a host program; only a worker starts it
    #[command(hide = true)]
    Program(program::GuardArgs),
    /// The first process of a host program's namespace; only a guard starts it
    #[command(hide = true)]
    ProgramInit(program::InitArgs),
    /// The process that has podman run a host program; only a guard starts it
    #[command(hide = true)]
    ProgramLauncher(program::LauncherArgs),
}

/// Returns the command-line definition, from which the reference page is generated.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the role given on the command line. It is in the library because the binary would compile the code of all roles a second time.
pub fn main() -> ExitCode {
    match Cli::parse().role {
        // Before a job runs, because the environment holds the broker's password.
        Role::Run(options) => match privileges::hide() {
            Ok(()) => run(*options),
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        },
        Role::Selftest(options) => check(options),
        Role::Compile(options) => compiler::compile_file(&options),
        Role::Executor(args) => executor::main(args),
        Role::DeviceList(args) => inventory::main(&args),
        Role::DeviceMonitor(args) => nvml::main(&args),
        Role::CompileChild => compiler::main(),
        Role::Session(args) => session::gate_main(args),
        Role::SessionEngine(args) => session::engine_main(&args),
        Role::Program(args) => program::guard_main(&args),
        Role::ProgramInit(args) => program::init_main(&args),
        Role::ProgramLauncher(args) => program::launcher_main(&args),
    }
}

/// Runs the self-test on one thread, as jobs run in a worker, so that the measurement includes the same cost.
#[tokio::main(flavor = "current_thread")]
async fn check(options: selftest::Options) -> ExitCode {
    selftest::run(options).await
}

/// Runs a worker on this thread, because the work for a small job takes less time than waking another thread.
#[tokio::main(flavor = "current_thread")]
async fn run(options: config::Options) -> ExitCode {
    telemetry::init(options.log_format);
    let config = match config::Config::try_from(options) {
        Ok(config) => config,
        Err(error) => command().error(clap::error::ErrorKind::ValueValidation, error).exit(),
    };
    tracing::info!(version = env!("CARGO_PKG_VERSION"), ?config, "starting");
    let background = match background() {
        Ok(background) => background,
        Err(error) => {
            eprintln!("error: failed to start threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = supervisor::run(config, background.handle().clone()).await;
    // The process ends now, whatever still runs there.
    background.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            exit::code(&error)
        }
    }
}

/// Creates the runtime for work that takes long.
fn background() -> io::Result<Runtime> {
    runtime::Builder::new_multi_thread().thread_name("background").enable_all().build()
}
