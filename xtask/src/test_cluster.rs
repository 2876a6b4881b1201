//! `cargo xtask test-cluster`: runs the scenarios that need a private RabbitMQ cluster of three nodes.

use gpufleet_local::{programs::BIN_DIR_VARIABLE, setup::Part};

use crate::{
    setup,
    terminal::Terminal,
    test::CLUSTER,
    workspace::{self, cargo},
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Passed on to the test program, such as a test's name
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&Part::TESTS, &terminal)?;
    terminal.heading("build everything");
    workspace::build_everything().await?;
    terminal.heading("run the scenarios on three nodes");
    let mut command = cargo(["test", "--package", "gpufleet-tests", "--test", CLUSTER, "--"]);
    command.args(&options.arguments).env(BIN_DIR_VARIABLE, workspace::target()?.join("debug"));
    workspace::run(command).await
}
