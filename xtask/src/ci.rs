//! `cargo xtask ci`: the checks of continuous integration, which contributors run beforehand.

use anyhow::Context as _;
use gpufleet_local::setup::Part;

use crate::{
    setup, sqlx,
    terminal::Terminal,
    test,
    workspace::{self, cargo},
};

/// The commands of this program that check more than the tests do.
const CHECKS: [&[&str]; 4] = [&["console"], &["deny"], &["docs"], &["kernels", "--check"]];

pub async fn run() -> anyhow::Result<()> {
    let terminal = Terminal::new();
    terminal.heading("format");
    workspace::run(cargo(["fmt", "--all", "--check"])).await?;
    for manifest in ["emulator/fuzz/Cargo.toml", "remote/fuzz/Cargo.toml"] {
        workspace::run(cargo(["fmt", "--check", "--manifest-path", manifest])).await?;
    }
    setup::ensure(&[Part::Services], &terminal)?;
    // Runs the installation in the background, so that downloads and the compiler do not wait for each other.
    let rest = tokio::task::spawn_blocking(|| setup::ensure(&Part::ALL, &Terminal::new()));
    Box::pin(lint(&terminal)).await?;
    rest.await.context("the installation failed")??;
    test::run(&test::Options::default(), &CHECKS).await
}

async fn lint(terminal: &Terminal) -> anyhow::Result<()> {
    terminal.heading("clippy");
    // Clippy compiles the ledger, so its queries are checked and described in the same build.
    let clippy = cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    sqlx::compile(clippy, &sqlx::Options { check: true }).await?;
    // Checks the client alone, as programs embed it.
    let client = ["clippy", "-p", "gpufleet", "--", "-D", "warnings"];
    workspace::run(cargo(client)).await
}
