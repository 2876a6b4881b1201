//! `cargo xtask test`: the whole suite, on real services, from nothing.
//!
//! The scenarios take the longest and mostly wait for something, so everything else runs beside them.

use std::{
    io::{self, Seek as _, Write as _},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, bail, ensure};
use gpufleet_local::{Signal, process::marked, programs::BIN_DIR_VARIABLE, setup::Part, state};
use tokio::process::Command;

use crate::{
    interrupt::Interrupted,
    python::Package,
    setup,
    terminal::Terminal,
    workspace::{self, cargo},
};

#[derive(Debug, Default, clap::Args)]
pub struct Options {
    /// Have the local fleet's scenario kill all pairs of services, which takes minutes
    #[arg(long)]
    all_pairs: bool,
    /// Run the scenarios on a RabbitMQ cluster of this many nodes
    #[arg(long, value_name = "COUNT")]
    nodes: Option<std::num::NonZeroU8>,
    /// Passed on to `cargo test --workspace`, such as a test's name
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Marks everything that a run of the suite starts. It lacks the prefix of our own variables, which a fleet's processes don't inherit.
const RUN_VARIABLE: &str = "XTASK_TEST_RUN";
/// Read by the scenario that kills a local fleet's services.
const ALL_PAIRS_VARIABLE: &str = "GPUFLEET_LOCAL_PAIRS";
/// Read by the scenarios' harness.
pub const NODES_VARIABLE: &str = "GPUFLEET_SCENARIO_NODES";
/// The test program that runs beside all others.
pub const SCENARIOS: &str = "scenarios";
/// The test program that only `cargo xtask test-cluster` runs, because it takes minutes.
pub const CLUSTER: &str = "cluster";
/// The guards of killed test binaries take about five seconds at most.
const CLEAN_WITHIN: Duration = Duration::from_secs(20);

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&Part::TESTS, &terminal)?;
    // With the same selection as the tests, so that nothing is built twice: the scenarios run these programs.
    terminal.heading("build everything");
    workspace::run(cargo(["build", "--workspace", "--all-targets"])).await?;
    // With arguments, which select tests of cargo, the Python package is left out.
    let package = if options.arguments.is_empty() { Some(Package::build("dev").await?) } else { None };
    terminal.heading("run all tests");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let run = format!("{}-{}", std::process::id(), now.as_nanos());
    let result = options.run_tests(&run, package).await;
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
    async fn run_tests(&self, run: &str, package: Option<Package>) -> anyhow::Result<()> {
        let Some(package) = package else {
            let mut command = cargo(["test", "--workspace"]);
            command.args(&self.arguments);
            return workspace::run(self.prepared(command, run)?).await;
        };
        let (scenarios, others): (Vec<_>, Vec<_>) =
            TestProgram::build_all()?.into_iter().partition(|program| program.target == SCENARIOS);
        let others: Vec<_> = others.into_iter().filter(|program| program.target != CLUSTER).collect();
        ensure!(scenarios.len() == 1, "{} test programs are called {SCENARIOS}", scenarios.len());
        let beside = async {
            for program in &others {
                run_captured(self.prepared(program.command(), run)?).await?;
            }
            run_captured(self.prepared(cargo(["test", "--workspace", "--doc"]), run)?).await?;
            for check in package.checks()? {
                run_captured(self.prepared(check, run)?).await?;
            }
            anyhow::Ok(())
        };
        let scenarios = workspace::run(self.prepared(scenarios[0].command(), run)?);
        let (scenarios, others) = tokio::join!(scenarios, beside);
        match (scenarios, others) {
            (Err(failed), Err(other)) if other.is::<Interrupted>() && !failed.is::<Interrupted>() => Err(other),
            (scenarios, others) => scenarios.and(others),
        }
    }

    fn prepared(&self, mut command: Command, run: &str) -> anyhow::Result<Command> {
        command.env(RUN_VARIABLE, run).env(BIN_DIR_VARIABLE, workspace::target()?.join("debug"));
        if self.all_pairs {
            command.env(ALL_PAIRS_VARIABLE, "1");
        }
        if let Some(nodes) = self.nodes {
            command.env(NODES_VARIABLE, nodes.to_string());
        }
        Ok(command)
    }
}

/// A program that contains tests.
#[derive(Debug)]
pub struct TestProgram {
    pub target: String,
    /// Where cargo runs it.
    pub package: PathBuf,
    pub executable: PathBuf,
}

impl TestProgram {
    /// Builds those of the workspace, in cargo's order.
    pub fn build_all() -> anyhow::Result<Vec<Self>> {
        let mut command = cargo(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]);
        let output = command.as_std_mut().stderr(Stdio::inherit()).output().context("start cargo")?;
        ensure!(output.status.success(), "the tests could not be built: cargo ended with {}", output.status);
        let mut programs: Vec<Self> = String::from_utf8(output.stdout)?
            .lines()
            .filter_map(|line| Self::of_message(line).transpose())
            .collect::<Result<_, _>>()?;
        programs.sort_by(|a, b| a.executable.cmp(&b.executable));
        Ok(programs)
    }

    /// The test program that a line of cargo's messages announces, if it does.
    fn of_message(line: &str) -> anyhow::Result<Option<Self>> {
        let message: serde_json::Value = serde_json::from_str(line).context("read cargo's messages")?;
        let (Some(executable), Some(true)) = (message["executable"].as_str(), message["profile"]["test"].as_bool())
        else {
            return Ok(None);
        };
        let manifest = message["manifest_path"].as_str().context("cargo names no manifest")?;
        let package = Path::new(manifest).parent().context("a manifest lies in no folder")?.to_owned();
        let target = message["target"]["name"].as_str().context("cargo names no target")?.to_owned();
        Ok(Some(Self { target, package, executable: executable.into() }))
    }

    /// Its command, in the environment that cargo gives a test.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        workspace::remove_package(&mut command);
        command.current_dir(&self.package).env("CARGO_MANIFEST_DIR", &self.package);
        command
    }
}

/// Runs a command, and shows its output as a whole when it has ended: two that print at once can't be read.
async fn run_captured(mut command: Command) -> anyhow::Result<()> {
    let mut output = tempfile::tempfile().context("create a file for the output")?;
    let handle = || output.try_clone().map(Stdio::from).context("share the file for the output");
    command.stdout(handle()?).stderr(handle()?);
    let described = command.as_std().get_program().to_string_lossy().into_owned();
    let result = workspace::run(command).await;
    output.rewind().context("read the output")?;
    let mut terminal = io::stderr().lock();
    writeln!(terminal, "     Ran {described}").context("show the output")?;
    io::copy(&mut output, &mut terminal).context("show the output")?;
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
    fn a_test_program_is_told_from_what_else_cargo_builds() {
        let artifact = |is_test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/tests/Cargo.toml","target":{{"name":"scenarios"}},
                    "profile":{{"test":{is_test}}},"executable":{executable}}}"#
            )
        };
        let program = TestProgram::of_message(&artifact(true, r#""/w/target/scenarios-1""#)).unwrap().unwrap();
        assert_eq!((&*program.target, program.package), (SCENARIOS, PathBuf::from("/w/tests")));
        assert_eq!(program.executable, PathBuf::from("/w/target/scenarios-1"));
        for other in [
            artifact(false, r#""/w/target/gpufleet""#),
            artifact(true, "null"),
            r#"{"reason":"build-finished"}"#.into(),
        ] {
            assert!(TestProgram::of_message(&other).unwrap().is_none(), "{other}");
        }
    }
}
