//! `cargo xtask docs`: the documentation site, built and checked.

use crate::workspace::{self, cargo};

pub async fn run() -> anyhow::Result<()> {
    let mut command = cargo(["run", "--quiet", "--package", "gpufleet-docs", "--"]);
    command.arg(workspace::root());
    workspace::run(command).await?;
    eprintln!("The site is in {}.", workspace::root().join("target/book/index.html").display());
    Ok(())
}
