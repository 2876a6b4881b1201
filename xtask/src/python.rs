//! `cargo xtask python`: builds the Python package, and tests it in a virtual environment.
//!
//! The package is assembled in the target folder and not in the environment, because several checkouts share the environment.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use gpufleet_local::{programs::BIN_DIR_VARIABLE, setup::Part};
use tokio::process::Command;

use crate::{
    setup,
    terminal::Terminal,
    workspace::{self, FLEET_PACKAGES},
};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Passed on to pytest, such as `-k fork`. With any, only pytest runs
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// The Cargo packages of the Python package's libraries: the extension module, and the driver of sessions.
pub const LIBRARIES: [&str; 2] = ["gpufleet-python", DRIVER];
/// The Cargo package of the driver of sessions.
pub const DRIVER: &str = "gpufleet-driver";
/// The driver of sessions in the Python package. In the folder of the sources, Python would take it for an extension module.
pub const DRIVER_FILE: &str = "gpufleet/lib/libgpufleet_driver.so";
/// The folders of Python sources in a wheel, as `pyproject.toml` lists them.
const PACKAGES: [&str; 2] = ["gpufleet", "gpufleet_pytest"];

/// The package as it is after an installation.
pub struct Package {
    /// The folder in which the package is installed.
    site: PathBuf,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&[Part::Services, Part::Compiler, Part::PythonTools], &terminal)?;
    terminal.heading("build");
    workspace::build(&[&FLEET_PACKAGES[..], &LIBRARIES].concat()).await?;
    let package = Package::assemble(&workspace::programs()?).await?;
    terminal.heading("test the Python package");
    if !options.arguments.is_empty() {
        let mut pytest = package.pytest()?;
        pytest.args(&options.arguments).env(BIN_DIR_VARIABLE, workspace::programs()?);
        return workspace::run(pytest).await;
    }
    let checks = package.static_checks()?;
    for mut check in checks.into_iter().chain([package.tests()?]) {
        check.env(BIN_DIR_VARIABLE, workspace::programs()?);
        workspace::run(check).await?;
    }
    Ok(())
}

impl Package {
    /// Assembles the package with the libraries that cargo has built into the folder `built`. maturin would build the module and all of its
    /// dependencies again, because their features differ if the module is selected alone.
    pub async fn assemble(built: &Path) -> anyhow::Result<Self> {
        let site = folder()?.join("site");
        workspace::fresh_folder(&site)?;
        let mut metadata = tool("maturin")?;
        metadata.args(["pep517", "write-dist-info", "--compatibility", "linux", "--metadata-directory"]).arg(&site);
        metadata.arg("--interpreter").arg(interpreter()?);
        workspace::remove_package(&mut metadata);
        workspace::run(metadata).await?;
        let sources = workspace::root().join("python");
        for package in PACKAGES {
            copy_sources(&sources.join(package), &site.join(package))?;
        }
        copy(&built.join("lib_core.so"), &site.join("gpufleet/_core.abi3.so"))?;
        copy(&built.join("libgpufleet_driver.so"), &site.join(DRIVER_FILE))?;
        Ok(Self { site })
    }

    /// Returns the folder of the package, for `PYTHONPATH`.
    pub fn site(&self) -> &Path {
        &self.site
    }

    /// Returns the commands that check the package without running it.
    pub fn static_checks(&self) -> anyhow::Result<Vec<Command>> {
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
        Ok(vec![format, lint, types, stubs, pyright])
    }

    /// Returns the command that runs all tests, in several processes that share one fleet. The tests of a file stay together and in order.
    /// They wait for a third of their time, so there is one process more than there are cores.
    pub fn tests(&self) -> anyhow::Result<Command> {
        let mut pytest = self.pytest()?;
        let cores = std::thread::available_parallelism().context("failed to count the cores")?;
        pytest.args(["--numprocesses", &(cores.get() + 1).to_string(), "--dist", "loadfile"]);
        Ok(pytest)
    }

    fn pytest(&self) -> anyhow::Result<Command> {
        let mut pytest = tool("pytest")?;
        pytest.args(["-p", "no:cacheprovider", "-c", "python/pyproject.toml", "python/tests"]);
        pytest.current_dir(workspace::root()).env("PYTHONPATH", &self.site);
        Ok(pytest)
    }
}

/// Returns a command of maturin that writes its output into a folder.
pub fn maturin(command: &str, output: &Path) -> anyhow::Result<Command> {
    let mut maturin = tool("maturin")?;
    maturin.arg(command).arg("--out").arg(output);
    workspace::remove_package(&mut maturin);
    Ok(maturin)
}

/// Returns the interpreter of the virtual environment.
pub fn interpreter() -> anyhow::Result<PathBuf> {
    Ok(Part::PythonTools.interpreter()?)
}

fn ruff() -> anyhow::Result<Command> {
    let mut ruff = tool("ruff")?;
    ruff.env("RUFF_CACHE_DIR", folder()?.join("ruff"));
    Ok(ruff)
}

/// Returns a tool of the virtual environment, to run in the folder of the package.
fn tool(module: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(interpreter()?);
    // Without -P, Python would import the package's sources instead of the installed package.
    command.args(["-P", "-m", module]).current_dir(workspace::root().join("python"));
    command.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONPATH").env_remove("PYTHONHOME");
    Ok(command)
}

fn folder() -> anyhow::Result<PathBuf> {
    Ok(workspace::target()?.join("python"))
}

/// Copies a file into a folder, which is made if necessary.
pub fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let copied = to.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::copy(from, to));
    copied.map(drop).with_context(|| format!("failed to copy {} to {}", from.display(), to.display()))
}

fn copy_sources(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| format!("failed to create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("failed to list {}", from.display()))? {
        let (name, path) = entry.map(|entry| (entry.file_name(), entry.path()))?;
        if path.is_file() {
            fs::copy(&path, to.join(name)).with_context(|| format!("failed to copy {}", path.display()))?;
        } else if name != "__pycache__" {
            copy_sources(&path, &to.join(name))?;
        }
    }
    Ok(())
}
