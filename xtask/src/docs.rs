//! `cargo xtask docs`: the documentation site, built and checked.

use clap::Args;

use crate::workspace::{self, cargo};

#[derive(Debug, Default, Args)]
pub struct Options {
    /// Generate the reference pages anew from the code first
    #[arg(long)]
    write: bool,
    /// Render the catalog's pictures on the fleet that GPUFLEET_AMQP_URL names, or the one of `gpufleet local up --cuda emulated`
    #[arg(long)]
    pictures: bool,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    let mut command = cargo(["run", "--quiet", "--package", "gpufleet-docs", "--"]);
    command
        .arg(workspace::root())
        .args(options.write.then_some("--write"))
        .args(options.pictures.then_some("--pictures"));
    workspace::run(command).await?;
    eprintln!("The site is in {}.", workspace::root().join("target/book/index.html").display());
    Ok(())
}
