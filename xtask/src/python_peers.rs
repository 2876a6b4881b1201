//! `cargo xtask python-airflow`, `python-dagster`, `python-pipelines` and `python-foreign`: test the Python package together with other
//! programs.
//!
//! These programs have many dependencies. So each has a virtual environment of its own, and its tests are not part of `cargo xtask python`.

use gpufleet_local::{programs::BIN_DIR_VARIABLE, setup::Part};
use tokio::process::Command;

use crate::{
    python::{LIBRARIES, Package},
    setup,
    terminal::Terminal,
    workspace::{self, FLEET_PACKAGES},
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Passed on to pytest, such as `-k documentation`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// A program or set of programs that the Python package works with.
pub struct Peer {
    name: &'static str,
    part: Part,
    /// The folder of the tests, relative to the workspace.
    tests: &'static str,
}

pub const AIRFLOW: Peer = Peer { name: "Airflow", part: Part::Airflow, tests: "python/peers/airflow" };

pub const DAGSTER: Peer = Peer { name: "Dagster", part: Part::Dagster, tests: "python/peers/dagster" };

pub const PIPELINES: Peer = Peer {
    name: "Spark, Ray, Dask, DuckDB, Polars and pandas",
    part: Part::Pipelines,
    tests: "python/peers/pipelines",
};

pub const FOREIGN: Peer =
    Peer { name: "PyTorch and notebooks of other authors", part: Part::Foreign, tests: "python/peers/foreign" };

pub async fn run(peer: &Peer, options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&[Part::Services, Part::Compiler, Part::PythonTools, peer.part], &terminal)?;
    terminal.heading("build");
    workspace::build(&[&FLEET_PACKAGES[..], &LIBRARIES].concat()).await?;
    let package = Package::assemble(&workspace::programs()?).await?;
    terminal.heading(&format!("test the Python package with {}", peer.name));
    workspace::run(peer.pytest(&package, options)?).await
}

impl Peer {
    fn pytest(&self, package: &Package, options: &Options) -> anyhow::Result<Command> {
        let mut pytest = Command::new(self.part.interpreter()?);
        pytest.args(["-P", "-m", "pytest", "-p", "no:cacheprovider", "-c", "python/pyproject.toml", self.tests]);
        pytest.args(&options.arguments).current_dir(workspace::root());
        // Programs that the tests start inherit the path, and find the package's entry points there.
        pytest.env("PYTHONPATH", package.site()).env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONHOME");
        pytest.env(BIN_DIR_VARIABLE, workspace::programs()?);
        Ok(pytest)
    }
}
