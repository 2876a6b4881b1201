//! `cargo xtask test`: runs the whole suite on real services, which it installs and starts.
//!
//! The scenarios and the Python tests keep all cores busy, so each runs alone: next to others, their tests would miss their deadlines. Of
//! the other parts, as many run at a time as the machine has cores.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, bail, ensure};
use gpufleet_local::{Signal, process::marked, programs::BIN_DIR_VARIABLE, setup::Part, state};
use tokio::{process::Command, task::JoinSet};

use crate::{
    interrupt::Interrupted,
    python::Package,
    setup,
    terminal::Terminal,
    workspace::{self, cargo},
};

mod deadline;
mod program;
mod run;
mod tally;
mod watch;

pub use program::TestProgram;
use tally::{Recorded, Tally};

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

/// The variable that marks every process that a run of the suite starts. It does not have the prefix of gpufleet's own variables, because
/// the processes of a fleet do not inherit those.
const RUN_VARIABLE: &str = "XTASK_TEST_RUN";
/// The variable for the scenario that kills a local fleet's services.
const ALL_PAIRS_VARIABLE: &str = "GPUFLEET_LOCAL_PAIRS";
/// The variable for the number of broker nodes, read by the harness of the scenarios.
pub const NODES_VARIABLE: &str = "GPUFLEET_SCENARIO_NODES";
/// The name of the test program that takes the longest.
pub const SCENARIOS: &str = "scenarios";
/// The name of the test program that only `cargo xtask test-cluster` runs, because it takes minutes.
pub const CLUSTER: &str = "cluster";
/// How long to wait for the guards of killed test binaries. They take about five seconds at most.
const CLEAN_WITHIN: Duration = Duration::from_secs(20);

/// The number of scenarios at a time for each core. Scenarios wait for most of their time. With more at a time, the suite takes as long,
/// but each scenario takes longer.
const SCENARIOS_PER_CORE: usize = 3;

/// Runs the suite, and also these commands of this program.
pub async fn run(options: &Options, more: &[&[&str]]) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&Part::TESTS, &terminal)?;
    // Builds with the same selection as the tests, so that nothing is built twice. The scenarios run these programs.
    terminal.heading("build everything");
    workspace::build_everything().await?;
    // Arguments select tests of cargo, so the Python package is left out then.
    let package =
        if options.arguments.is_empty() { Some(Package::assemble(&workspace::programs()?).await?) } else { None };
    terminal.heading("run all tests");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let run = format!("{}-{}", std::process::id(), now.as_nanos());
    let result = options.run_tests(&run, package, more).await;
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

/// A part of the suite.
enum Section {
    Program {
        name: String,
        command: Box<Command>,
    },
    /// Commands that test or check something, to run one after the other.
    Checks(Vec<Command>),
}

impl Section {
    /// Runs the section. Failed tests are added to the tally; an error means an interruption.
    async fn run(self, tally: &Tally) -> anyhow::Result<()> {
        match self {
            Self::Program { name, command } => run::tests(*command, &name, tally).await,
            Self::Checks(checks) => {
                for check in checks {
                    run::check(check, tally).await?;
                }
                Ok(())
            }
        }
    }
}

impl Options {
    async fn run_tests(&self, run: &str, package: Option<Package>, more: &[&[&str]]) -> anyhow::Result<()> {
        let Some(package) = package else {
            let mut command = cargo(["test", "--workspace"]);
            command.args(&self.arguments);
            return workspace::run(self.prepared(command, run)?).await;
        };
        let cores = std::thread::available_parallelism().context("failed to count the cores")?.get();
        let target = workspace::target()?;
        let program = |program: &TestProgram| {
            let mut command = Box::new(self.prepared(program.command(), run)?);
            if program.target == SCENARIOS {
                command.arg(format!("--test-threads={}", SCENARIOS_PER_CORE * cores));
            }
            anyhow::Ok(Section::Program { name: program.name(), command })
        };
        let checks = |commands: Vec<Command>| {
            let prepared = commands.into_iter().map(|command| self.prepared(command, run));
            anyhow::Ok(Section::Checks(prepared.collect::<Result<_, _>>()?))
        };
        let mut programs = TestProgram::build_all()?;
        programs.retain(|program| program.target != CLUSTER);
        // Starts with the programs that took the longest in the last run, so that none of them is left to run alone at the end.
        let recorded = Recorded::read(&target);
        let expected =
            |program: &TestProgram| recorded.of(&program.name()).unwrap_or(expected_seconds(&program.target));
        programs.sort_by(|a, b| expected(b).partial_cmp(&expected(a)).expect("a time is a number"));
        let (scenarios, others): (Vec<_>, Vec<_>) = programs.iter().partition(|program| program.target == SCENARIOS);
        let mut alone = scenarios.into_iter().map(program).collect::<Result<Vec<_>, _>>()?;
        alone.push(checks(vec![package.tests()?])?);
        let mut sections = VecDeque::new();
        for arguments in more {
            sections.push_back(checks(vec![own(arguments)?])?);
        }
        sections.push_back(checks(package.static_checks()?)?);
        for other in others {
            sections.push_back(program(other)?);
        }
        sections.push_back(checks(vec![cargo(["test", "--workspace", "--doc"])])?);

        let tally = Arc::<Tally>::default();
        for section in alone {
            section.run(&tally).await?;
        }
        let sections = Arc::new(Mutex::new(sections));
        let mut running = JoinSet::<anyhow::Result<()>>::new();
        for _ in 0..cores {
            let (sections, tally) = (Arc::clone(&sections), Arc::clone(&tally));
            running.spawn(async move {
                loop {
                    let next = sections.lock().expect("no panic happens under this lock").pop_front();
                    let Some(section) = next else { return Ok(()) };
                    section.run(&tally).await?;
                }
            });
        }
        let mut interrupted = Ok(());
        while let Some(ended) = running.join_next().await {
            let ended = ended.context("the watcher of a section failed")?;
            interrupted = interrupted.and(ended);
        }
        interrupted?;
        let counts = tally.counts();
        counts.show();
        counts.record(&target)?;
        ensure!(counts.failed.is_empty(), "{} failed", counts.failed.len());
        Ok(())
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

/// Estimates the duration of a program's tests in seconds, for the first run. Only the longest ones matter.
fn expected_seconds(target: &str) -> f64 {
    match target {
        "executor" => 200.0,
        "documentation" | "errors" | "postgres" => 60.0,
        _ => 0.0,
    }
}

/// Returns this program with a command that does not build again. Its path is that of the new build, because the build may have replaced
/// the running file.
fn own(arguments: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(workspace::programs()?.join("xtask"));
    command.args(arguments).env(workspace::BUILT_VARIABLE, "1");
    Ok(command)
}

/// Waits until no process of a private fleet is left from this run. Kills the rest after a while, and returns how many were left.
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
