//! `cargo xtask dist`: builds the files of a release into `target/packages`.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::Context as _;
use gpufleet_local::setup::Part;
use tokio::process::Command;

use crate::{
    portable, setup,
    terminal::Terminal,
    wheel,
    workspace::{self, cargo},
};

mod archive;
mod debian;
mod files;

use files::{COMMAND, Programs};

/// The profile in Cargo.toml, and the folder in `target` that cargo uses for it.
const PROFILE: &str = "dist";
const PACKAGES: [&str; 7] = [
    "gpufleet-cli",
    "gpufleet-worker",
    "gpufleet-ledger",
    "gpufleet-console",
    "gpufleet-local-s3",
    "gpufleet-emulator",
    "gpufleet-driver",
];

#[derive(Debug, Default, clap::Args)]
pub struct Options {
    /// Pack the programs in this folder instead of building them
    #[arg(long, value_name = "FOLDER")]
    programs: Option<PathBuf>,
    /// Leave the wheel of the Python package out
    #[arg(long)]
    no_wheel: bool,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&[Part::DebianTools, Part::Zig], &terminal)?;
    let started = Instant::now();
    let (programs, portable, libraries) = match &options.programs {
        Some(folder) => {
            let given = || Programs::in_folder(folder.clone());
            (given(), given(), given())
        }
        None => (build(&terminal).await?, build_portable(&terminal).await?, build_libraries(&terminal).await?),
    };
    let folder = folder()?;
    workspace::fresh_folder(&folder)?;
    terminal.heading("pack them");
    archive::build(&portable, &libraries, &folder).await?;
    debian::build(&programs, &folder).await?;
    if !options.no_wheel {
        for wheel in wheel::build().await? {
            copy_into(&wheel, &folder)?;
        }
    }
    workspace::run(sums(&folder)?).await?;
    describe(&folder, started)
}

async fn build(terminal: &Terminal) -> anyhow::Result<Programs> {
    terminal.heading("build the programs");
    let mut build = cargo(["build", "--locked", "--profile", PROFILE]);
    build.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    workspace::run(build).await?;
    Ok(Programs::in_folder(workspace::target()?.join(PROFILE)))
}

/// Builds the command for the archive.
async fn build_portable(terminal: &Terminal) -> anyhow::Result<Programs> {
    terminal.heading("build the command for every Linux");
    workspace::run(portable::build(&["--locked", "--profile", PROFILE, "--package", COMMAND]).await?).await?;
    Ok(Programs::in_folder(workspace::target()?.join(portable::triple()).join(PROFILE)))
}

/// Builds the library of the archive, which the programs of any Linux system with glibc load.
async fn build_libraries(terminal: &Terminal) -> anyhow::Result<Programs> {
    terminal.heading("build the driver library for every Linux");
    workspace::run(portable::build_library(&["--locked", "--profile", PROFILE, "--package", "gpufleet-driver"])?)
        .await?;
    Ok(Programs::in_folder(workspace::target()?.join(portable::library_triple()).join(PROFILE)))
}

/// Returns the folder of the results.
pub fn folder() -> anyhow::Result<PathBuf> {
    Ok(workspace::target()?.join("packages"))
}

fn copy_into(file: &Path, folder: &Path) -> anyhow::Result<()> {
    let name = file.file_name().context("a file has a name")?;
    fs::copy(file, folder.join(name)).with_context(|| format!("failed to copy {}", file.display())).map(drop)
}

/// Returns the command that writes the checksums of all files.
fn sums(folder: &Path) -> anyhow::Result<Command> {
    let file = fs::File::create(folder.join("SHA256SUMS")).context("failed to create SHA256SUMS")?;
    let mut command = Command::new("sha256sum");
    command.args(names(folder)?.iter().filter(|name| *name != "SHA256SUMS")).current_dir(folder).stdout(file);
    Ok(command)
}

fn describe(folder: &Path, started: Instant) -> anyhow::Result<()> {
    eprintln!("{} in {} s:", folder.display(), started.elapsed().as_secs());
    for name in names(folder)? {
        let bytes = fs::metadata(folder.join(&name)).with_context(|| format!("failed to look at {name}"))?.len();
        eprintln!("  {:>8.2} MB  {name}", bytes as f64 / 1e6);
    }
    Ok(())
}

/// Returns the names of the files in a folder, sorted.
fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("failed to list {}", folder.display()))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
