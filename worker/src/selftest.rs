//! `gpufleet-worker selftest`: tests a device without a broker.
//!
//! Each check runs like a real job: an executor stages it, launches it and copies the results back. The self-test compares the results of
//! the catalog kernels with those of the CPU and, on a GPU, of the emulator. It also provokes faults and measures the cost of a job.

mod catalog;
mod faults;
mod measures;
mod programs;
mod runner;
mod tasks;

use std::{process::ExitCode, time::Duration};

use clap::Args;

use self::runner::Runner;
use crate::{
    config::env,
    executor::{CudaSpec, ExecutorOptions, StartError},
    exit, inventory,
};

/// Options of `gpufleet-worker selftest`.
#[derive(Debug, Args)]
pub struct Options {
    /// CUDA driver: system, emulated, auto, or the path of a libcuda
    ///
    /// `emulated` runs kernels on the CPU. `auto` takes the system's driver if it has a device, and the emulated one otherwise.
    #[arg(long, value_name = "DRIVER", env = env::CUDA, default_value = "system")]
    cuda: CudaSpec,

    /// Number of the device to test
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: u32,
}

/// Why the self-test fails.
#[derive(Debug, thiserror::Error)]
enum SelfTestError {
    #[error("{0}")]
    Start(#[from] StartError),
    #[error("{wrong} of {all} checks failed; see the lines marked FAILED")]
    Wrong { wrong: usize, all: usize },
}

/// The number of checks so far, and how many of them failed.
#[derive(Debug, Default)]
struct Checks {
    all: usize,
    wrong: usize,
}

impl Checks {
    /// Counts a check. Returns the word for its outcome.
    fn record(&mut self, passed: bool) -> &'static str {
        self.all += 1;
        self.wrong += usize::from(!passed);
        if passed { "ok" } else { "FAILED" }
    }
}

/// Runs all checks and prints the results.
pub async fn run(options: Options) -> ExitCode {
    match check_all(&options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            match error {
                SelfTestError::Start(_) => exit::NO_DEVICE.into(),
                SelfTestError::Wrong { .. } => exit::UNFIT.into(),
            }
        }
    }
}

async fn check_all(options: &Options) -> Result<(), SelfTestError> {
    inventory::make_nodes(&options.cuda).await;
    let mut runner = Runner::start(ExecutorOptions::new(options.device, options.cuda.clone())).await?;
    let device = runner.device().clone();
    let (major, minor) = device.compute_capability;
    println!(
        "device {}: {}, compute capability {major}.{minor}, {} MiB, driver {}{}",
        device.ordinal,
        device.name,
        device.memory_bytes >> 20,
        device.driver_version,
        if device.emulated { ", emulated" } else { "" }
    );
    println!("library: {}", device.library);
    let mut emulator = if device.emulated { None } else { emulator().await };
    let mut checks = Checks::default();
    catalog::check(&mut runner, emulator.as_mut(), &mut checks).await?;
    faults::check(&mut runner, &mut checks).await?;
    measures::print(&mut runner).await?;
    programs::print(&device).await;
    println!("\n{} checks, {} failed", checks.all, checks.wrong);
    if checks.wrong > 0 { Err(SelfTestError::Wrong { wrong: checks.wrong, all: checks.all }) } else { Ok(()) }
}

/// Starts the emulator to compare with, if it is installed.
async fn emulator() -> Option<Runner> {
    match Runner::start(ExecutorOptions::new(0, CudaSpec::Emulated)).await {
        Ok(runner) => Some(runner),
        Err(error) => {
            println!("skipped the comparison with the emulator: {error}");
            None
        }
    }
}

/// Formats a duration with one decimal and a unit, such as `12.3ms`.
fn short(time: Duration) -> String {
    format!("{time:.1?}")
}
