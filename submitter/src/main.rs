//! The `gpufleet` command.

use std::process::ExitCode;

mod cli;

fn main() -> ExitCode {
    cli::run().into()
}
