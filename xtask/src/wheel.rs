//! `cargo xtask wheel`: builds the wheel and the source distribution of the Python package.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use gpufleet_local::setup::Part;

use crate::{portable::with_zig, python::maturin, setup, terminal::Terminal, workspace};

/// The platform of the wheel: systems with the GNU C library 2.17 or newer.
const COMPATIBILITY: &str = "manylinux2014";

pub async fn run() -> anyhow::Result<()> {
    build().await.map(drop)
}

/// Builds the wheel and the source distribution, and returns their files.
pub async fn build() -> anyhow::Result<Vec<PathBuf>> {
    let terminal = Terminal::new();
    setup::ensure(&[Part::PythonTools, Part::Zig], &terminal)?;
    let wheels = workspace::target()?.join("wheels");
    // The wheel of an earlier run may be for another C library.
    if wheels.exists() {
        fs::remove_dir_all(&wheels).with_context(|| format!("failed to remove {}", wheels.display()))?;
    }
    fs::create_dir_all(&wheels).with_context(|| format!("failed to create {}", wheels.display()))?;
    terminal.heading("build the wheel");
    let mut wheel = maturin("build", &wheels)?;
    wheel.args(["--zig", "--compatibility", COMPATIBILITY, "--profile", "dist"]);
    with_zig(&mut wheel)?;
    workspace::run(wheel).await?;
    terminal.heading("build the source distribution");
    workspace::run(maturin("sdist", &wheels)?).await?;
    let built = fs::read_dir(&wheels).with_context(|| format!("failed to list {}", wheels.display()))?;
    Ok(built.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?)
}
