//! `cargo xtask ci`: what continuous integration runs, and what a contributor runs before it.

use anyhow::Context as _;
use gpufleet_local::setup::Part;

use crate::{
    setup, sqlx,
    terminal::Terminal,
    test,
    workspace::{self, cargo},
};

/// Commands of this program that check more than the tests do.
const CHECKS: [&[&str]; 4] = [&["console"], &["deny"], &["docs"], &["kernels", "--check"]];

pub async fn run() -> anyhow::Result<()> {
    let terminal = Terminal::new();
    terminal.heading("format");
    workspace::run(cargo(["fmt", "--all", "--check"])).await?;
    workspace::run(cargo(["fmt", "--check", "--manifest-path", "emulator/fuzz/Cargo.toml"])).await?;
    setup::ensure(&[Part::Services], &terminal)?;
    // The compiler and a download do not wait for each other.
    let rest = tokio::task::spawn_blocking(|| setup::ensure(&Part::ALL, &Terminal::new()));
    Box::pin(lint(&terminal)).await?;
    rest.await.context("the installation failed")??;
    test::run(&test::Options::default(), &CHECKS).await
}

async fn lint(terminal: &Terminal) -> anyhow::Result<()> {
    terminal.heading("clippy");
    // This compiles the ledger, so its queries are checked and described at the same time.
    let clippy = cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    sqlx::compile(clippy, &sqlx::Options { check: true }).await?;
    // The client alone, as programs embed it.
    let client = ["clippy", "-p", "gpufleet", "--lib", "--no-default-features", "--", "-D", "warnings"];
    workspace::run(cargo(client)).await
}
