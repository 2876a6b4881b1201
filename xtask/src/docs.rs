//! `cargo xtask docs`: builds and checks the documentation site.

use clap::Args;

use tokio::process::Command;

use crate::workspace;

/// The name of the package and of its program.
const PACKAGE: &str = "gpufleet-docs";

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
    workspace::build(&[PACKAGE]).await?;
    let mut command = Command::new(workspace::programs()?.join(PACKAGE));
    command
        .current_dir(workspace::root())
        .arg(workspace::root())
        .args(options.write.then_some("--write"))
        .args(options.pictures.then_some("--pictures"));
    workspace::run(command).await?;
    eprintln!("The site is in {}.", workspace::root().join("target/book/index.html").display());
    Ok(())
}
