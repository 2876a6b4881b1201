//! `cargo xtask console`: checks and builds the web application of the console, and tests it in a browser on a private fleet.
//!
//! The built application is committed, so that building the program does not need Node.js. This command fails if it is out of date.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, ensure};
use gpufleet_local::{Cuda, LocalFleet, Services, StateDir, programs, programs::BIN_DIR_VARIABLE, setup::Part};
use tokio::process::Command;

use crate::{
    interrupt::unless_interrupted,
    setup,
    terminal::Terminal,
    workspace::{self, FLEET_PACKAGES},
};

#[derive(Debug, Default, clap::Args)]
pub struct Options {
    /// Write the built application instead of comparing it, and run no test
    #[arg(long)]
    write: bool,
    /// Write pictures of every page into this folder, and run no test
    #[arg(long, conflicts_with = "write")]
    pictures: Option<PathBuf>,
    /// Passed on to Node's test runner, such as `--test-name-pattern keyboard`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub const CONSOLE_PACKAGE: &str = "gpufleet-console";
const WORKERS: u32 = 1;

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&[Part::Services, Part::Compiler, Part::Browser], &terminal)?;
    install().await?;
    terminal.heading("check and build the web application");
    let dist = if options.write { web().join("dist") } else { scratch()?.join("dist") };
    let mut check = node_program("npm")?;
    check.args(["run", "--silent", "check"]);
    workspace::run(check).await?;
    let mut build = node_program("npm")?;
    build.args(["run", "--silent", "build", "--", "--emptyOutDir", "--logLevel", "warn", "--outDir"]).arg(&dist);
    workspace::run(build).await?;
    if options.write {
        return Ok(());
    }
    ensure!(
        files(&dist)? == files(&web().join("dist"))?,
        "the built application of the console is out of date; run `cargo xtask console --write` and commit it"
    );
    terminal.heading("build");
    workspace::build(&[&FLEET_PACKAGES[..], &[CONSOLE_PACKAGE]].concat()).await?;
    let state = StateDir::ephemeral()?;
    let result = unless_interrupted(Box::pin(test(options, &terminal, &state))).await;
    state.close().await?;
    result
}

/// Returns whether the machine has Node.js, which `cargo xtask setup` does not install.
pub fn has_node() -> bool {
    programs::system("npm").is_some()
}

/// Installs the packages of the lock file, unless they are installed already.
pub async fn install() -> anyhow::Result<()> {
    let lock =
        fs::read(web().join("package-lock.json")).context("failed to read the lock file of the web application")?;
    let marker = web().join("node_modules/.gpufleet-lock");
    if fs::read(&marker).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    let mut npm = node_program("npm")?;
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
    workspace::run(npm).await?;
    fs::write(&marker, lock).with_context(|| format!("failed to write {}", marker.display()))
}

async fn test(options: &Options, terminal: &Terminal, state: &Arc<StateDir>) -> anyhow::Result<()> {
    let blobs = state.path().join("blobs");
    fs::create_dir_all(&blobs).with_context(|| format!("failed to create {}", blobs.display()))?;
    let start = async {
        let services = Services::start(Arc::clone(state)).await?;
        let builder = LocalFleet::builder().label("console").on(&services).workers(WORKERS).cuda(Cuda::Emulated);
        anyhow::Ok(Box::pin(builder.blobs(&blobs).start()).await?)
    };
    let fleet = terminal.steps().step_async("start a private fleet", start).await?;
    let mut tests = node_program("node")?;
    match &options.pictures {
        Some(folder) => {
            terminal.heading("write pictures");
            fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
            tests.arg(web().join("tests/pictures.mjs")).arg(std::path::absolute(folder)?);
        }
        None => {
            terminal.heading("test in a browser");
            tests.args(["--test", "--test-concurrency=1"]).args(&options.arguments).args(test_files()?);
        }
    }
    tests.env(BIN_DIR_VARIABLE, workspace::programs()?).env("GPUFLEET_BLOBS", &blobs);
    tests.env("GPUFLEET_AMQP_URL", &fleet.endpoints().amqp_url);
    tests.env("GPUFLEET_DATABASE_URL", &fleet.endpoints().database_url);
    workspace::run(tests).await?;
    fleet.stop().await?;
    Ok(())
}

fn test_files() -> anyhow::Result<impl Iterator<Item = PathBuf>> {
    let tests = web().join("tests");
    let names = files(&tests)?.into_keys().filter(|name| name.to_string_lossy().ends_with(".test.mjs"));
    Ok(names.map(move |name| tests.join(name)))
}

fn node_program(name: &str) -> anyhow::Result<Command> {
    let path = programs::system(name).with_context(|| {
        format!(
            "failed to find {name}: install Node.js 20.19 or later with npm; only work on the web application needs it"
        )
    })?;
    let mut command = Command::new(path);
    command.current_dir(web());
    Ok(command)
}

fn web() -> PathBuf {
    workspace::root().join("console/web")
}

fn scratch() -> anyhow::Result<PathBuf> {
    let folder = workspace::target()?.join("console");
    fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
    Ok(folder)
}

/// Returns the contents of a folder's files by their relative paths.
fn files(folder: &Path) -> anyhow::Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(inside) = folders.pop() {
        for entry in fs::read_dir(&inside).with_context(|| format!("failed to list {}", inside.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("the path was listed in the folder").to_owned();
                found.insert(name, fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?);
            }
        }
    }
    Ok(found)
}
