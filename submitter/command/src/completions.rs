//! `gpufleet completions`

use clap::{Args, Command};
use clap_complete::Shell;

use super::{complaint::Complaint, exit::Exit, output};

/// Print the completion script of a shell
///
/// For bash: gpufleet completions bash > ~/.local/share/bash-completion/completions/gpufleet
#[derive(Debug, Args)]
pub struct Options {
    /// Shell to print the script for
    shell: Shell,
}

pub fn run(options: &Options, mut command: Command) -> Result<Exit, Complaint> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command, "gpufleet", &mut script);
    output::emit(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}
