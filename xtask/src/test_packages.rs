//! `cargo xtask test-packages`: installs the Debian package into fresh Debian systems, and runs a user's first steps and the services
//! there. Then it tries the archive in an older system.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use gpufleet_local::setup::Part;
use tokio::process::Command;

use crate::{debian::Debian, dist, setup, terminal::Terminal, workspace};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Debian releases by name [default: those that the documentation names]
    #[arg(default_values = ["bookworm", "trixie"])]
    releases: Vec<String>,
}

/// The scripts to run in each system, from `tests/packages`. The first script runs the second one; the third one runs in the booted system.
const SCRIPTS: [&str; 4] = [INSTALL, "first_minutes.sh", SERVICES, REMOVE];
const INSTALL: &str = "install.sh";
const SERVICES: &str = "services.sh";
const REMOVE: &str = "remove.sh";
/// The script to run in the older system.
const ARCHIVE_SCRIPT: &str = "archive.sh";
/// A release whose C library is older than the Debian package requires.
const OLD_RELEASE: &str = "bullseye";
/// lintian's tags that are no faults here: the project keeps its own changelog, and only the command has man pages.
const ALLOWED: &str = "no-changelog,no-manual-page";

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&[Part::DebianTests], &terminal)?;
    let package = built(".deb")?;
    let archive = built("-linux-musl.tar.gz")?;
    terminal.heading("check the package");
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error", "--suppress-tags", ALLOWED]).arg(&package);
    workspace::run(lintian).await?;
    for release in &options.releases {
        terminal.heading(&format!("install into Debian {release}"));
        let system = Debian::install(release).await?;
        system.copy(&package, "gpufleet.deb")?;
        for script in SCRIPTS {
            copy_script(&system, script)?;
        }
        system.run(INSTALL, &[]).await?;
        system.boot(SERVICES).await?;
        system.run(REMOVE, &[]).await?;
    }
    terminal.heading(&format!("use the archive in Debian {OLD_RELEASE}"));
    let system = Debian::install(OLD_RELEASE).await?;
    system.copy(&archive, "gpufleet.tar.gz")?;
    copy_script(&system, ARCHIVE_SCRIPT)?;
    system.run(ARCHIVE_SCRIPT, &[]).await
}

fn copy_script(system: &Debian, script: &str) -> anyhow::Result<()> {
    system.copy(&workspace::root().join("tests/packages").join(script), script)
}

/// Returns the file of this kind that `cargo xtask dist` has built.
fn built(end: &str) -> anyhow::Result<PathBuf> {
    let folder = dist::folder()?;
    let mut paths = fs::read_dir(&folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let found = paths.find(|path| path.to_string_lossy().ends_with(end));
    found.with_context(|| format!("{} has no *{end}; build it with `cargo xtask dist`", folder.display()))
}
