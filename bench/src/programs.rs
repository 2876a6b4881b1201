//! The fleet's programs have to be those of this source tree and this profile: a figure of an old build would mislead.

use std::{path::Path, process::Command};

use anyhow::{Context as _, ensure};
use gpufleet_local::programs::BIN_DIR_VARIABLE;

use crate::machine::OPTIMISED;

const PACKAGES: [&str; 5] = ["gpufleet", "gpufleet-worker", "gpufleet-ledger", "gpufleet-console", "gpufleet-emulator"];

/// Builds them beside this program when `cargo run` started it, unless somebody chose others. Started by its path, it takes
/// the programs that lie there.
pub fn build() -> anyhow::Result<()> {
    if !OPTIMISED {
        eprintln!(
            "WARNING: built without optimisation, the figures mean nothing; run `cargo run --release -p gpufleet-bench`"
        );
    }
    let chosen = std::env::var_os(BIN_DIR_VARIABLE).is_some_and(|directory| !directory.is_empty());
    let Some(cargo) = std::env::var_os("CARGO").filter(|_| !chosen) else { return Ok(()) };
    let me = std::env::current_exe().context("find this program")?;
    let profile_directory = me.parent().context("this program lies in no directory")?;
    let mut build = Command::new(cargo);
    build.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "--profile", profile(profile_directory)?]);
    build.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    if let Some(target) = profile_directory.parent() {
        build.arg("--target-dir").arg(target);
    }
    eprintln!("build the fleet's programs …");
    let status = build.status().context("run cargo")?;
    ensure!(status.success(), "the fleet's programs could not be built: cargo ended with {status}");
    Ok(())
}

/// Cargo names the directory after the profile, but for the one called `dev`.
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
