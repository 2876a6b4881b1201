//! The benchmark commands (`cargo xtask bench` and the others, except `bench-emulator`): measure an optimised build.

use std::path::PathBuf;

use gpufleet_local::{programs::BIN_DIR_VARIABLE, setup::Part};
use tokio::process::Command;

use crate::{
    python::{LIBRARIES, Package},
    setup,
    terminal::Terminal,
    workspace::{self, FLEET_PACKAGES, cargo},
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Passed on to the benchmark, such as `--repeat 9`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Runs a benchmark of `gpufleet-bench`. `parts` are the programs that it needs on this machine.
pub async fn run(benchmark: &str, parts: &[Part], options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(parts, &terminal)?;
    build(&terminal).await?;
    terminal.heading("measure");
    workspace::run(command(benchmark, options)?).await
}

/// Measures the Python package next to the Rust client.
pub async fn run_python(options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&[Part::Services, Part::PythonTools, Part::Comparison], &terminal)?;
    build(&terminal).await?;
    let package = Package::assemble(&programs()?).await?;
    terminal.heading("measure");
    let mut bench = command("python", options)?;
    bench.env("BENCH_PYTHON_PACKAGE", package.site());
    workspace::run(bench).await
}

async fn build(terminal: &Terminal) -> anyhow::Result<()> {
    terminal.heading("build with optimisation");
    let mut build = cargo(["build", "--release", "--package", "gpufleet-bench"]);
    build.args(FLEET_PACKAGES.iter().chain(&LIBRARIES).flat_map(|package| ["--package", package]));
    workspace::run(build).await
}

fn programs() -> anyhow::Result<PathBuf> {
    Ok(workspace::target()?.join("release"))
}

/// Returns the command of the benchmark. `cargo run` would build the package alone, whose dependencies then have other
/// features and are compiled again.
fn command(benchmark: &str, options: &Options) -> anyhow::Result<Command> {
    let programs = programs()?;
    let mut bench = Command::new(programs.join("gpufleet-bench"));
    bench.arg(benchmark).args(&options.arguments).env(BIN_DIR_VARIABLE, programs);
    Ok(bench)
}
