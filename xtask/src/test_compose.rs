//! `cargo xtask test-compose`: runs the fleet of `compose.yaml` with Docker Compose and podman, in a Debian system of its own.

use std::{fs, path::Path};

use anyhow::Context as _;
use gpufleet_local::setup::Part;
use tokio::process::Command;

use crate::{debian::Debian, setup, terminal::Terminal, test_images, workspace};

/// The Debian release that has Docker Compose, RabbitMQ 4 and Postgres 17.
const RELEASE: &str = "trixie";
/// The scripts in `tests/compose`. The first one builds the images, with the machine's network. The second one starts the fleet in the booted
/// system, which has a network of its own.
const BUILD: &str = "build.sh";
const UP: &str = "up.sh";
/// A shell script that copies the repository's files to the folder that it is given.
const COPY: &str = "git ls-files -z --cached --others --exclude-standard --deduplicate \
    | tar --create --null --ignore-failed-read --files-from - | tar --extract --directory \"$1\"";

pub async fn run() -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&[Part::DebianTests], &terminal)?;
    terminal.heading(&format!("install Debian {RELEASE}"));
    let mut system = Debian::install(RELEASE).await?;
    copy_source(&system.folder().join("src")).await?;
    for script in [BUILD, UP] {
        system.copy(&workspace::root().join("tests/compose").join(script), script)?;
    }
    let rust = test_images::rust().await?;
    system.share(rust.clone().into());
    terminal.heading("build the images");
    let version = test_images::rust_version()?;
    system.run(BUILD, &[("RUST", &rust), ("RUST_VERSION", &version)]).await?;
    terminal.heading("start the fleet");
    system.boot(UP).await
}

/// Copies the repository's files, without what git ignores.
async fn copy_source(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    let mut copy = Command::new("sh");
    copy.args(["-euc", COPY, "sh"]).arg(folder).current_dir(workspace::root());
    workspace::run(copy).await
}
