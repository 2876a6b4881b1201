//! `cargo xtask test`: the whole suite, on real services, from nothing.
//!
//! The scenarios take the longest and mostly wait for something, so everything else runs beside them.

use std::{
    io::{self, Seek as _},
    process::Stdio,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, bail};
use gpufleet_local::{Signal, process::marked, programs::BIN_DIR_VARIABLE, setup::Part, state};
use tokio::process::Command;

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
/// The selection of the scenarios, and that of all other tests but those in documentation. Cargo has no option that leaves a target out.
const SCENARIOS: [&str; 2] = ["--test", "scenarios"];
const OTHERS: [&str; 8] = ["--lib", "--bins", "--test", "[!s]*", "--test", "s[!c]*", "--test", "sc[!e]*"];
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
    let result = options.run_tests(&run).await;
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

impl Options {
    async fn run_tests(&self, run: &str) -> anyhow::Result<()> {
        if !self.arguments.is_empty() {
            return workspace::run(self.cargo_test(&[], run)?).await;
        }
        let scenarios = workspace::run(self.cargo_test(&SCENARIOS, run)?);
        let others = async {
            run_captured(self.cargo_test(&OTHERS, run)?).await?;
            run_captured(self.cargo_test(&["--doc"], run)?).await
        };
        let (scenarios, others) = tokio::join!(scenarios, others);
        match (scenarios, others) {
            (Err(failed), Err(interrupted)) if interrupted.is::<Interrupted>() && !failed.is::<Interrupted>() => {
                Err(interrupted)
            }
            (scenarios, others) => scenarios.and(others),
        }
    }

    fn cargo_test(&self, targets: &[&str], run: &str) -> anyhow::Result<Command> {
        let mut command = cargo(["test", "--workspace"]);
        command.args(targets).args(&self.arguments);
        command.env(RUN_VARIABLE, run).env(BIN_DIR_VARIABLE, workspace::target()?.join("debug"));
        if self.all_pairs {
            command.env(ALL_PAIRS_VARIABLE, "1");
        }
        Ok(command)
    }
}

/// Runs a command, and shows its output as a whole when it has ended: two that print at once can't be read.
async fn run_captured(mut command: Command) -> anyhow::Result<()> {
    let mut output = tempfile::tempfile().context("create a file for the output")?;
    let handle = || output.try_clone().map(Stdio::from).context("share the file for the output");
    command.stdout(handle()?).stderr(handle()?);
    let result = workspace::run(command).await;
    output.rewind().context("read the output")?;
    io::copy(&mut output, &mut io::stderr().lock()).context("show the output")?;
    result
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_target_is_selected_once() {
        let mut command = cargo(["metadata", "--no-deps", "--format-version", "1"]);
        let output = command.as_std_mut().output().unwrap();
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let packages = metadata["packages"].as_array().unwrap().iter();
        let targets = packages.flat_map(|package| package["targets"].as_array().unwrap());
        let tests = targets.filter(|target| target["kind"][0] == "test").map(|target| target["name"].as_str().unwrap());
        let (scenarios, others): (Vec<&str>, Vec<&str>) = tests.partition(|name| *name == SCENARIOS[1]);
        assert_eq!(scenarios.len(), 1);
        assert!(!others.is_empty());
        assert!(others.iter().all(|name| !name.starts_with("sce")), "the patterns leave out one of {others:?}");
    }
}
