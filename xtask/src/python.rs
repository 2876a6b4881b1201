//! `cargo xtask python`: the Python package, built and tested in a virtual environment.
//!
//! The wheel is unpacked into the target folder and not into the environment, because several checkouts share that.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use gpufleet_local::{
    programs::BIN_DIR_VARIABLE,
    setup::{Part, python_environment},
};
use tokio::process::Command;

use crate::{
    setup,
    terminal::Terminal,
    workspace::{self, FLEET_PACKAGES, build_of},
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Passed on to pytest, such as `-k fork`. With any, only pytest runs
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// The package as a user would have it installed.
pub struct Package {
    /// The folder of the installed package.
    site: PathBuf,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&[Part::Services, Part::Compiler, Part::PythonTools], &terminal)?;
    terminal.heading("build");
    workspace::run(build_of(&FLEET_PACKAGES)?).await?;
    let package = Package::build("dev").await?;
    terminal.heading("test the Python package");
    if !options.arguments.is_empty() {
        let mut pytest = package.pytest()?;
        pytest.args(&options.arguments).env(BIN_DIR_VARIABLE, workspace::programs()?);
        return workspace::run(pytest).await;
    }
    for mut check in package.checks()? {
        check.env(BIN_DIR_VARIABLE, workspace::programs()?);
        workspace::run(check).await?;
    }
    Ok(())
}

impl Package {
    /// Builds the wheel with a profile of cargo, and unpacks it.
    pub async fn build(profile: &str) -> anyhow::Result<Self> {
        let wheels = folder()?.join("wheels");
        let site = folder()?.join("site");
        for old in [&wheels, &site] {
            if old.exists() {
                fs::remove_dir_all(old).with_context(|| format!("remove {}", old.display()))?;
            }
        }
        let mut build = maturin("build", &wheels)?;
        build.args(["--profile", profile, "--strip", "--compatibility", "linux"]);
        workspace::run(build).await?;
        let mut install = tool("pip")?;
        install.args(["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", "--target"]);
        install.arg(&site).arg(only_file(&wheels)?).env("PIP_ROOT_USER_ACTION", "ignore");
        workspace::run(install).await?;
        Ok(Self { site })
    }

    /// The folder that has the package, for `PYTHONPATH`.
    pub fn site(&self) -> &Path {
        &self.site
    }

    /// The commands that check the package.
    pub fn checks(&self) -> anyhow::Result<Vec<Command>> {
        let mut format = ruff()?;
        format.args(["format", "--check", "."]);
        let mut lint = ruff()?;
        lint.args(["check", "."]);
        let mut types = tool("mypy")?;
        types.args(["gpufleet", "gpufleet_pytest", "tests"]).arg("--cache-dir").arg(folder()?.join("mypy"));
        let mut stubs = tool("mypy.stubtest")?;
        stubs.args(["gpufleet._core", "--mypy-config-file", "pyproject.toml", "--allowlist", "stubtest.txt"]);
        stubs.env("PYTHONPATH", &self.site).env("MYPYPATH", workspace::root().join("python"));
        let mut pyright = tool("pyright")?;
        pyright.args(["gpufleet", "gpufleet_pytest", "--pythonpath"]).arg(interpreter()?);
        Ok(vec![format, lint, types, stubs, pyright, self.pytest()?])
    }

    fn pytest(&self) -> anyhow::Result<Command> {
        let mut pytest = tool("pytest")?;
        pytest.args(["-p", "no:cacheprovider", "-c", "python/pyproject.toml", "python/tests"]);
        pytest.current_dir(workspace::root()).env("PYTHONPATH", &self.site);
        Ok(pytest)
    }
}

/// A command of maturin, whose output goes into a folder.
pub fn maturin(command: &str, output: &Path) -> anyhow::Result<Command> {
    let mut maturin = tool("maturin")?;
    maturin.arg(command).arg("--out").arg(output);
    workspace::remove_package(&mut maturin);
    Ok(maturin)
}

/// The interpreter of the environment.
pub fn interpreter() -> anyhow::Result<PathBuf> {
    Ok(python_environment()?)
}

fn ruff() -> anyhow::Result<Command> {
    let mut ruff = tool("ruff")?;
    ruff.env("RUFF_CACHE_DIR", folder()?.join("ruff"));
    Ok(ruff)
}

/// A tool of the environment, in the folder of the package.
fn tool(module: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(interpreter()?);
    // Without -P, Python would import the sources of the package instead of what is installed.
    command.args(["-P", "-m", module]).current_dir(workspace::root().join("python"));
    command.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONPATH").env_remove("PYTHONHOME");
    Ok(command)
}

fn folder() -> anyhow::Result<PathBuf> {
    Ok(workspace::target()?.join("python"))
}

fn only_file(folder: &Path) -> anyhow::Result<PathBuf> {
    let files = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    let mut paths = files.map(|file| Ok(file?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(paths.len() == 1, "there are {} files in {}, not one wheel", paths.len(), folder.display());
    Ok(paths.remove(0))
}
