//! `cargo xtask bench` and its likes but `bench-emulator`: measure an optimised build.

use gpufleet_local::{programs::BIN_DIR_VARIABLE, setup::Part};

use crate::{
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

/// Runs this benchmark of `gpufleet-bench`, which needs these parts of the machine.
pub async fn run(benchmark: &str, parts: &[Part], options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(parts, &terminal)?;
    terminal.heading("build with optimisation");
    let mut build = cargo(["build", "--release", "--package", "gpufleet-bench"]);
    build.args(FLEET_PACKAGES.iter().flat_map(|package| ["--package", package]));
    workspace::run(build).await?;
    terminal.heading("measure");
    let mut bench = cargo(["run", "--quiet", "--release", "--package", "gpufleet-bench", "--", benchmark]);
    bench.args(&options.arguments).env(BIN_DIR_VARIABLE, workspace::target()?.join("release"));
    workspace::run(bench).await
}
