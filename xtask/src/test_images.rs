//! `cargo xtask test-images`: builds the container images, and runs a job in the worker's image.

use std::fs;

use anyhow::Context as _;
use gpufleet_local::{programs::BIN_DIR_VARIABLE, setup::Part};
use tokio::process::Command;

use crate::{
    debian::Debian,
    setup,
    terminal::Terminal,
    workspace::{self, FLEET_PACKAGES},
};

/// The Debian release of the images' base.
const RELEASE: &str = "bookworm";
const DOCKERFILE: &str = "deploy/Dockerfile";

pub async fn run() -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&[Part::Services, Part::Compiler, Part::DebianTests, Part::Images], &terminal)?;
    terminal.heading("build");
    workspace::build(&FLEET_PACKAGES).await?;
    terminal.heading("build the images");
    let system = Debian::install(RELEASE).await?;
    let store = tempfile::tempdir_in(workspace::target()?).context("failed to create a folder for the images")?;
    let mut script = Command::new("sh");
    script.arg("tests/images/images.sh").current_dir(workspace::root());
    script.env("SYSTEM", system.folder()).env("STORE", store.path());
    script.env("RUST", rust().await?).env("RUST_VERSION", rust_version()?);
    script.env(BIN_DIR_VARIABLE, workspace::programs()?);
    workspace::run(script).await
}

/// Returns the folder of the Rust toolchain.
pub async fn rust() -> anyhow::Result<String> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "sysroot"]).current_dir(workspace::root());
    Ok(workspace::output_of(rustc).await?.trim().to_owned())
}

/// Returns the version of Rust that the Dockerfile names.
pub fn rust_version() -> anyhow::Result<String> {
    let file = fs::read_to_string(workspace::root().join(DOCKERFILE)).context("failed to read the Dockerfile")?;
    let version = file.lines().find_map(|line| line.strip_prefix("ARG RUST_VERSION="));
    Ok(version.context("the Dockerfile names no RUST_VERSION")?.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_images_are_built_from_the_whole_workspace() {
        let read = |file: &str| fs::read_to_string(workspace::root().join(file)).unwrap();
        let (manifest, ignored) = (read("Cargo.toml"), read("deploy/Dockerfile.dockerignore"));
        let let_in: Vec<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
        let members = manifest.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
        let members: Vec<&str> =
            members.lines().filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\",")).collect();
        assert!(members.contains(&"worker"), "{members:?}");
        for member in members {
            assert!(let_in.iter().any(|folder| Path::new(member).starts_with(folder)), "{member} is missing");
        }
        for folder in let_in {
            assert!(workspace::root().join(folder).exists(), "there is no {folder}");
        }
    }
}
