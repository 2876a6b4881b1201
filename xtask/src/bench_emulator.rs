//! `cargo xtask bench-emulator`: measures the emulated device next to plain Rust.
//!
//! The plain kernels are built twice, with and without the compiler's vectorisers, each into a folder of its own. Both builds may use all
//! instructions of this processor, as the emulator does.

use std::path::PathBuf;

use crate::workspace::{self, cargo};

const PLAIN: &str = "gpufleet-bench-plain";
const VECTORISED: &[&str] = &["-C", "target-cpu=native"];
const SCALAR: &[&str] = &["-C", "target-cpu=native", "-C", "no-vectorize-loops", "-C", "no-vectorize-slp"];

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Passed on to the benchmark, such as `--rounds 15` or `--only matmul`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let scalar = build_plain("plain-scalar", SCALAR).await?;
    let vectorised = build_plain("plain-vectorised", VECTORISED).await?;
    workspace::run(cargo(["build", "--release", "--package", "gpufleet-emulator"])).await?;
    let emulator = workspace::target()?.join("release").join("libgpufleet_emulator.so");
    let mut bench = cargo(["run", "--quiet", "--release", "--package", "gpufleet-bench-emulator", "--"]);
    bench.arg("--scalar").arg(scalar).arg("--vectorised").arg(vectorised).arg("--emulator").arg(emulator);
    bench.args(&options.arguments);
    workspace::run(bench).await
}

/// Builds the plain kernels with these compiler flags, and returns the path of the library.
async fn build_plain(folder: &str, flags: &[&str]) -> anyhow::Result<PathBuf> {
    let target = workspace::target()?.join(folder);
    let mut build = cargo(["rustc", "--release", "--package", PLAIN, "--lib", "--crate-type", "cdylib"]);
    build.arg("--target-dir").arg(&target).arg("--").args(flags);
    workspace::run(build).await?;
    Ok(target.join("release").join("libgpufleet_bench_plain.so"))
}
