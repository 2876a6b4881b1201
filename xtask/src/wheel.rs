//! `cargo xtask wheel`: builds the wheel and the source distribution of the Python package.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use gpufleet_local::setup::Part;

use crate::{
    portable::{build_library, library_triple, with_zig},
    python::{DRIVER, DRIVER_FILE, copy, maturin},
    setup,
    terminal::Terminal,
    workspace,
};

/// The platform of the wheel: systems with the GNU C library 2.17 or newer.
const COMPATIBILITY: &str = "manylinux2014";
/// The profile in Cargo.toml, and the folder of its builds.
const PROFILE: &str = "dist";

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
    terminal.heading("build the driver library of sessions");
    workspace::run(build_library(&["--locked", "--profile", PROFILE, "--package", DRIVER])?).await?;
    terminal.heading("build the wheel");
    let mut wheel = maturin("build", &wheels)?;
    wheel.args(["--zig", "--compatibility", COMPATIBILITY, "--profile", PROFILE]);
    with_zig(&mut wheel)?;
    let driver = Placed::driver()?;
    workspace::run(wheel).await?;
    drop(driver);
    terminal.heading("build the source distribution");
    workspace::run(maturin("sdist", &wheels)?).await?;
    let built = fs::read_dir(&wheels).with_context(|| format!("failed to list {}", wheels.display()))?;
    Ok(built.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?)
}

/// The driver library among the Python sources, from where maturin takes it into the wheel. Dropping it removes the file.
struct Placed(PathBuf);

impl Placed {
    fn driver() -> anyhow::Result<Self> {
        let name = Path::new(DRIVER_FILE).file_name().context("the driver library is a file")?;
        let built = workspace::target()?.join(library_triple()).join(PROFILE).join(name);
        let place = workspace::root().join("python").join(DRIVER_FILE);
        copy(&built, &place)?;
        Ok(Self(place))
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        // git ignores the file, and the next build replaces it.
        _ = fs::remove_file(&self.0);
        _ = self.0.parent().map(fs::remove_dir);
    }
}
