//! `cargo xtask wheel`: the wheel and the source distribution of the Python package.

use anyhow::Context as _;
use gpufleet_local::setup::Part;

use crate::{python::maturin, setup, terminal::Terminal, workspace};

pub async fn run() -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&[Part::PythonTools], &terminal)?;
    let wheels = workspace::target()?.join("wheels");
    std::fs::create_dir_all(&wheels).with_context(|| format!("create {}", wheels.display()))?;
    terminal.heading("build the wheel");
    // maturin names the oldest C library that the result runs on.
    let mut wheel = maturin("build", &wheels)?;
    wheel.args(["--profile", "wheel", "--strip"]);
    workspace::run(wheel).await?;
    terminal.heading("build the source distribution");
    workspace::run(maturin("sdist", &wheels)?).await
}
