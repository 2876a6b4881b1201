//! `cargo xtask test`: the whole suite, on real services, from nothing.

use std::time::{Duration, Instant, SystemTime};

use anyhow::bail;
use gpufleet_local::{Signal, process::marked, programs::BIN_DIR_VARIABLE, setup::Part, state};

use crate::{
    interrupt::Interrupted,
    setup,
    terminal::Terminal,
    workspace::{self, cargo},
};

#[derive(Debug, Default, clap::Args)]
pub struct Options {
    /// Have the local fleet's scenario kill all pairs of services, which takes minutes
    #[arg(long)]
    all_pairs: bool,
    /// Passed on to `cargo test --workspace`, such as a test's name
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Marks everything that a run of the suite starts. It lacks the prefix of our own variables, which a fleet's processes don't inherit.
const RUN_VARIABLE: &str = "XTASK_TEST_RUN";
/// Read by the scenario that kills a local fleet's services.
const ALL_PAIRS_VARIABLE: &str = "GPUFLEET_LOCAL_PAIRS";
/// The guards of killed test binaries take about five seconds at most.
const CLEAN_WITHIN: Duration = Duration::from_secs(20);

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&Part::ALL, &terminal)?;
    // With the same selection as the tests, so that nothing is built twice: the scenarios run these programs.
    terminal.heading("build everything");
    workspace::run(cargo(["build", "--workspace", "--all-targets"])).await?;
    terminal.heading("run all tests");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let run = format!("{}-{}", std::process::id(), now.as_nanos());
    let mut command = cargo(["test", "--workspace"]);
    command.args(&options.arguments).env(RUN_VARIABLE, &run).env(BIN_DIR_VARIABLE, workspace::target()?.join("debug"));
    if options.all_pairs {
        command.env(ALL_PAIRS_VARIABLE, "1");
    }
    let result = workspace::run(command).await;
    let left = clean_up(&run).await;
    if let Err(error) = result {
        if error.is::<Interrupted>() {
            return Err(error);
        }
        bail!("the tests failed: {error:#}");
    }
    if left > 0 {
        bail!(
            "{left} processes of private fleets were still there {} s after the tests; they were killed",
            CLEAN_WITHIN.as_secs()
        );
    }
    Ok(())
}

/// Waits until no process of a private fleet is left from this run, and kills what stays; tells how many.
async fn clean_up(run: &str) -> usize {
    let remaining = || {
        marked(RUN_VARIABLE, run)
            .into_iter()
            .filter(|identity| identity.has_variable(state::MARKER))
            .collect::<Vec<_>>()
    };
    let deadline = Instant::now() + CLEAN_WITHIN;
    while !remaining().is_empty() {
        if Instant::now() >= deadline {
            let left = remaining();
            left.iter().for_each(|identity| identity.signal(Signal::Kill));
            return left.len();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    0
}
