//! The archive for machines that only submit jobs: the command, its man pages and its completions, and the library for programs in
//! sessions.

use std::path::Path;

use anyhow::Context as _;
use tokio::process::Command;

use super::files::{COMMAND, DRIVER, Programs, install, of_project};
use crate::workspace;

const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

pub async fn build(programs: &Programs, libraries: &Programs, packages: &Path) -> anyhow::Result<()> {
    let name = format!("gpufleet-{}-{}-linux-musl", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let stage = tempfile::tempdir().context("failed to create a folder for the archive")?;
    let root = stage.path().join(&name);
    install(&programs.path(COMMAND), &root.join("bin").join(COMMAND), 0o755)?;
    install(&libraries.path(DRIVER), &root.join("lib/gpufleet").join(DRIVER), 0o644)?;
    programs.describe_command(&root.join("share")).await?;
    for document in DOCUMENTS {
        install(&of_project(document), &root.join(document), 0o644)?;
    }
    let mut tar = Command::new("tar");
    // The archive does not contain the name of the user who made it.
    tar.args(["--create", "--gzip", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg("--file").arg(packages.join(format!("{name}.tar.gz"))).arg("--directory").arg(stage.path()).arg(&name);
    workspace::run(tar).await
}
