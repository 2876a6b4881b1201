//! `cargo xtask fuzz`: searches for PTX texts that make the emulator panic, hang or use unbounded memory.
//!
//! libFuzzer's coverage comes from an LLVM pass that the stable compiler has too.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use tokio::process::Command;

use crate::{
    terminal::Terminal,
    workspace::{self, cargo},
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// How long to look, on one core
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
}

/// The compiler flags for coverage: counters on every edge, and the operands of comparisons.
const FLAGS: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];
/// The time limit of a text. A text of the maximum length takes a thousandth of this to load and run.
const TIMEOUT_SECONDS: u32 = 10;
/// The memory limit of the process; the corpus takes most of it.
const RESIDENT_MIB_MAX: u32 = 1024;
/// The limit of one allocation: more than the 64 MiB that a warp's calls or its local memory may take.
const ALLOCATION_MIB_MAX: u32 = 128;
/// The maximum length of a text. Longer texts only repeat shorter ones.
const TEXT_BYTES_MAX: u32 = 16 << 10;
/// The folders with texts to begin with: valid ones, refused ones, and earlier findings. The cases of every instruction are added to them.
const SEEDS: [&str; 5] = ["emulator/cases", "kernels", "worker/tests", "tests/harness", "emulator/fuzz/regressions"];

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    terminal.heading("build the fuzz target and the cases");
    let (root, target) = (workspace::root(), workspace::target()?.join("fuzz"));
    // Naming the target keeps the flags away from build scripts and macros.
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build =
        cargo(["build", "--release", "--locked", "--target", &host, "--manifest-path", "emulator/fuzz/Cargo.toml"]);
    build.env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f")).env("CARGO_TARGET_DIR", &target);
    workspace::run(build).await?;
    workspace::build(&["gpufleet-conformance"]).await?;
    let [corpus, seeds, findings] = ["corpus", "seeds", "findings"].map(|name| target.join(name));
    if seeds.exists() {
        fs::remove_dir_all(&seeds).with_context(|| format!("failed to remove {}", seeds.display()))?;
    }
    for folder in [&corpus, &seeds, &findings] {
        fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    }
    for folder in SEEDS {
        copy_texts(&root.join(folder), &seeds)?;
    }
    let mut cases = Command::new(workspace::programs()?.join("ptx-cases"));
    cases.arg("--write").arg(&seeds);
    workspace::run(cases).await?;
    terminal.heading(&format!("fuzz for {} s", options.seconds));
    let mut fuzz = Command::new(target.join(host).join("release/ptx"));
    fuzz.arg(format!("-max_total_time={}", options.seconds))
        .arg(format!("-timeout={TIMEOUT_SECONDS}"))
        .arg(format!("-rss_limit_mb={RESIDENT_MIB_MAX}"))
        .arg(format!("-malloc_limit_mb={ALLOCATION_MIB_MAX}"))
        .arg(format!("-max_len={TEXT_BYTES_MAX}"))
        .arg(format!("-dict={}", root.join("emulator/fuzz/ptx.dict").display()))
        .arg(format!("-artifact_prefix={}/", findings.display()))
        .args(["-print_final_stats=1", "-verbosity=1"])
        .args([&corpus, &seeds]);
    if let Err(error) = workspace::run(fuzz).await {
        if error.is::<crate::interrupt::Interrupted>() {
            return Err(error);
        }
        bail!(
            "{error:#}; the text lies in {}: mend it, and keep the text in emulator/fuzz/regressions",
            findings.display()
        );
    }
    Ok(())
}

/// Copies every PTX file of a folder. The new names contain the old paths.
fn copy_texts(from: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("failed to list {}", from.display()))? {
        let path: PathBuf = entry.with_context(|| format!("failed to list {}", from.display()))?.path();
        if path.is_dir() {
            copy_texts(&path, to)?;
        } else if path.extension().is_some_and(|extension| extension == "ptx") {
            let name = path.strip_prefix(workspace::root()).unwrap_or(&path).display().to_string().replace('/', "-");
            fs::copy(&path, to.join(name)).with_context(|| format!("failed to copy {}", path.display()))?;
        }
    }
    Ok(())
}
