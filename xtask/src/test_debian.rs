//! `cargo xtask test-debian`: runs the scenarios in a fresh Debian, on its own RabbitMQ and Postgres.

use std::num::NonZeroU8;

use anyhow::Context as _;
use gpufleet_local::{
    programs::BIN_DIR_VARIABLE,
    setup::{Part, cache_folder},
};

use crate::{
    debian::Debian,
    setup,
    terminal::Terminal,
    test::{NODES_VARIABLE, SCENARIOS, TestProgram},
    workspace,
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Debian release by name
    #[arg(default_value = "trixie")]
    release: String,
    /// Run the scenarios on a RabbitMQ cluster of this many nodes
    #[arg(long, value_name = "COUNT", default_value_t = NonZeroU8::MIN)]
    nodes: NonZeroU8,
    /// Passed on to the test program, such as a test's name
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// The script to run in the system, from `tests/packages`.
const SCRIPT: &str = "scenarios.sh";

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    // The system uses programs and libraries of this machine too, but not its services.
    setup::ensure(&[Part::DebianTests, Part::Compiler, Part::Pika], &terminal)?;
    terminal.heading("build everything");
    workspace::build_everything().await?;
    let programs = TestProgram::build_all()?;
    let scenarios = programs.iter().find(|program| program.target == SCENARIOS).context("there are no scenarios")?;
    terminal.heading(&format!("run the scenarios in Debian {}", options.release));
    let mut system = Debian::install(&options.release).await?;
    system.copy(&workspace::root().join("tests/packages").join(SCRIPT), SCRIPT)?;
    for folder in [workspace::root(), workspace::target()?, cache_folder()?] {
        system.share(folder);
    }
    let command = [scenarios.executable.display().to_string(), options.arguments.join(" ")].join(" ");
    let programs = workspace::target()?.join("debug").display().to_string();
    let package = scenarios.package.display().to_string();
    let nodes = options.nodes.to_string();
    let variables = [
        ("SCENARIOS", &*command),
        ("CARGO_MANIFEST_DIR", &package),
        (BIN_DIR_VARIABLE, &programs),
        (NODES_VARIABLE, &nodes),
    ];
    system.run(SCRIPT, &variables).await
}
