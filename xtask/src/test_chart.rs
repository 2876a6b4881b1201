//! `cargo xtask test-chart`: renders the Helm chart with Helm's own engine, checks the result, and starts the programs as its pods would.

use gpufleet_local::{programs::BIN_DIR_VARIABLE, setup::Part};
use tokio::process::Command;

use crate::{
    console::CONSOLE_PACKAGE,
    setup,
    terminal::Terminal,
    workspace::{self, FLEET_PACKAGES},
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Passed on to pytest, such as `-k keda`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&[Part::Services, Part::Compiler, Part::Chart], &terminal)?;
    terminal.heading("build");
    workspace::build(&[&FLEET_PACKAGES[..], &[CONSOLE_PACKAGE]].concat()).await?;
    terminal.heading("test the chart");
    let mut pytest = Command::new(Part::Chart.interpreter()?);
    pytest.args(["-m", "pytest", "-p", "no:cacheprovider", "-c", "tests/chart/pytest.ini", "tests/chart"]);
    pytest.args(&options.arguments).current_dir(workspace::root());
    pytest.env(BIN_DIR_VARIABLE, workspace::programs()?).env("PYTHONDONTWRITEBYTECODE", "1");
    pytest.env_remove("PYTHONPATH").env_remove("PYTHONHOME");
    workspace::run(pytest).await
}
