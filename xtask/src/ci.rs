//! `cargo xtask ci`: what continuous integration runs, and what a contributor runs before it.

use crate::{
    console, docs, kernels, sqlx,
    terminal::Terminal,
    test,
    workspace::{self, cargo},
};

pub async fn run() -> anyhow::Result<()> {
    let terminal = Terminal::new();
    terminal.heading("format");
    workspace::run(cargo(["fmt", "--all", "--check"])).await?;
    workspace::run(cargo(["fmt", "--check", "--manifest-path", "emulator/fuzz/Cargo.toml"])).await?;
    terminal.heading("clippy");
    workspace::run(cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])).await?;
    // The client alone, as programs embed it.
    workspace::run(cargo(["clippy", "-p", "gpufleet", "--lib", "--no-default-features", "--", "-D", "warnings"]))
        .await?;
    terminal.heading("documentation");
    docs::run(&docs::Options::default()).await?;
    test::run(&test::Options::default()).await?;
    Box::pin(console::run(&console::Options::default())).await?;
    kernels::run(&kernels::Options { check: true }).await?;
    sqlx::run(&sqlx::Options { check: true }).await
}
