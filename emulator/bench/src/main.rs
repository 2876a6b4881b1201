//! Compares the emulated device with plain Rust: equal work on equal inputs, on one thread, in one run.
//!
//! `cargo xtask bench-emulator` builds what this program opens and runs it; `emulator/bench/README.md` explains the
//! result.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;

mod cases;
mod clock;
mod driver;
mod emulated;
mod latency;
mod plain;
mod report;
mod rounds;
mod spread;

/// Compares the emulated device with plain Rust
#[derive(Debug, Parser)]
#[command(name = "gpufleet-bench-emulator", version)]
struct Options {
    /// Number of rounds; each measures everything once
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measure only kernels whose names contain this text
    #[arg(long)]
    only: Option<String>,
    /// The plain kernels, built without the compiler's vectorisers
    #[arg(long, value_name = "LIBRARY")]
    scalar: PathBuf,
    /// The plain kernels, built with them
    #[arg(long, value_name = "LIBRARY")]
    vectorised: PathBuf,
    /// The emulator's library, for launches through the driver API
    #[arg(long, value_name = "LIBRARY")]
    emulator: PathBuf,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    let load_before = report::load();
    let mut cases = cases::all(cases::MEASURED);
    cases.retain(|case| options.only.as_ref().is_none_or(|part| case.name.contains(part.as_str())));
    let scalar = plain::Library::open(&options.scalar).context("failed to open the scalar kernels")?;
    let vectorised = plain::Library::open(&options.vectorised).context("failed to open the vectorised kernels")?;
    let machine = emulated::Machine::new().context("failed to set up the emulated machine")?;
    let results = rounds::measure(&cases, &scalar, &vectorised, &machine, options.rounds)?;
    let latency = latency::measure(&machine, &options.emulator).context("failed to measure launches")?;
    print!("{}", report::render(&results, &latency, options.rounds, load_before));
    Ok(())
}
