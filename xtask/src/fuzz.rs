//! `cargo xtask fuzz`: searches for PTX texts that make the emulator panic, hang or use unbounded memory, and for messages that do this to a
//! session.
//!
//! libFuzzer's coverage comes from an LLVM pass that the stable compiler has too.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use tokio::process::Command;

use crate::{
    terminal::Terminal,
    workspace::{self, cargo},
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// What to fuzz: ptx, the emulator's loader, or session, the messages of sessions
    #[arg(long, value_enum, default_value_t = Target::Ptx)]
    pub target: Target,
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

/// Inputs that one process tries. Contexts of ended sessions stay in their process, whose memory is bounded.
const SESSION_RUNS: u32 = 20_000;

/// What can be fuzzed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    Ptx,
    Session,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::Ptx => "ptx",
            Self::Session => "session",
        }
    }

    /// What to do with a finding.
    fn keep(self) -> &'static str {
        match self {
            Self::Ptx => "keep the input in emulator/fuzz/regressions",
            Self::Session => "add a test of its calls to remote/session/tests/pair/strangers.rs",
        }
    }

    /// The folder of the target's package, from the root.
    fn folder(self) -> &'static str {
        match self {
            Self::Ptx => "emulator/fuzz",
            Self::Session => "remote/fuzz",
        }
    }
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    let (name, folder) = (options.target.name(), options.target.folder());
    terminal.heading("build the fuzz target");
    let (root, target) = (workspace::root(), workspace::target()?.join("fuzz"));
    // Naming the target keeps the flags away from build scripts and macros.
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let manifest = format!("{folder}/Cargo.toml");
    let mut build = cargo(["build", "--release", "--locked", "--target", &host, "--manifest-path", &manifest]);
    build.env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f")).env("CARGO_TARGET_DIR", &target);
    workspace::run(build).await?;
    let [corpus, seeds, findings] = ["corpus", "seeds", "findings"].map(|kind| target.join(name).join(kind));
    if seeds.exists() {
        fs::remove_dir_all(&seeds).with_context(|| format!("failed to remove {}", seeds.display()))?;
    }
    for folder in [&corpus, &seeds, &findings] {
        fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    }
    let program = target.join(host).join("release").join(name);
    let deadline = Instant::now() + Duration::from_secs(options.seconds.into());
    terminal.heading(&format!("fuzz for {} s", options.seconds));
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).as_secs();
        let mut fuzz = Command::new(&program);
        fuzz.arg(format!("-max_total_time={}", left.max(1)))
            .arg(format!("-timeout={TIMEOUT_SECONDS}"))
            .arg(format!("-rss_limit_mb={RESIDENT_MIB_MAX}"))
            .arg(format!("-malloc_limit_mb={ALLOCATION_MIB_MAX}"))
            .arg(format!("-artifact_prefix={}/", findings.display()))
            .args(["-print_final_stats=1", "-verbosity=1"]);
        match options.target {
            Target::Ptx => seed_with_ptx(&root, &seeds, &mut fuzz).await?,
            Target::Session => of_sessions(&mut fuzz).await?,
        }
        fuzz.args([&corpus, &seeds]);
        if let Err(error) = workspace::run(fuzz).await {
            if error.is::<crate::interrupt::Interrupted>() {
                return Err(error);
            }
            let findings = findings.display();
            bail!("{error:#}; the input lies in {findings}: mend it, and {}", options.target.keep());
        }
        if options.target == Target::Ptx || Instant::now() >= deadline {
            return Ok(());
        }
    }
}

/// Prepares the texts to begin with.
async fn seed_with_ptx(root: &Path, seeds: &Path, fuzz: &mut Command) -> anyhow::Result<()> {
    workspace::build(&["gpufleet-conformance"]).await?;
    for folder in SEEDS {
        copy_texts(&root.join(folder), seeds)?;
    }
    let mut cases = Command::new(workspace::programs()?.join("ptx-cases"));
    cases.arg("--write").arg(seeds);
    workspace::run(cases).await?;
    fuzz.arg(format!("-max_len={TEXT_BYTES_MAX}"))
        .arg(format!("-dict={}", root.join("emulator/fuzz/ptx.dict").display()));
    Ok(())
}

/// Gives sessions the emulator as their driver.
async fn of_sessions(fuzz: &mut Command) -> anyhow::Result<()> {
    workspace::build(&["gpufleet-emulator"]).await?;
    let emulator = workspace::target()?.join("debug/libgpufleet_emulator.so");
    fuzz.env("FUZZ_DRIVER", emulator).arg(format!("-runs={SESSION_RUNS}"));
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
