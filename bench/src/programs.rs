//! Builds the fleet's programs. They must come from this source tree and this profile, because figures of an old build would mislead.

use std::{path::Path, process::Command};

use anyhow::{Context as _, ensure};
use gpufleet_local::programs::BIN_DIR_VARIABLE;

use crate::machine::OPTIMISED;

const PACKAGES: [&str; 5] = ["gpufleet", "gpufleet-worker", "gpufleet-ledger", "gpufleet-console", "gpufleet-emulator"];

/// Builds the programs if `cargo run` started this program, unless the environment names others. If this program was started by its path,
/// it uses the programs in its own folder.
pub fn build() -> anyhow::Result<()> {
    if !OPTIMISED {
        eprintln!(
            "WARNING: built without optimisation, the figures mean nothing; run `cargo run --release -p gpufleet-bench`"
        );
    }
    let chosen = std::env::var_os(BIN_DIR_VARIABLE).is_some_and(|directory| !directory.is_empty());
    let Some(cargo) = std::env::var_os("CARGO").filter(|_| !chosen) else { return Ok(()) };
    let me = std::env::current_exe().context("failed to find this program")?;
    let profile_directory = me.parent().context("this program lies in no directory")?;
    let mut build = Command::new(cargo);
    build.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "--profile", profile(profile_directory)?]);
    build.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    if let Some(target) = profile_directory.parent() {
        build.arg("--target-dir").arg(target);
    }
    eprintln!("build the fleet's programs …");
    let status = build.status().context("failed to run cargo")?;
    ensure!(status.success(), "the fleet's programs could not be built: cargo ended with {status}");
    Ok(())
}

/// Returns the profile of a build folder. Cargo names the folder after the profile, except for `dev`.
fn profile(directory: &Path) -> anyhow::Result<&str> {
    let name = directory.file_name().and_then(|name| name.to_str()).context("this program's directory has no name")?;
    Ok(if name == "debug" { "dev" } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_is_that_of_the_directory() {
        assert_eq!(profile(Path::new("target/release")).unwrap(), "release");
        assert_eq!(profile(Path::new("target/debug")).unwrap(), "dev");
    }
}
