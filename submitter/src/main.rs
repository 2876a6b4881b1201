//! The `gpufleet` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpufleet::cli::run().into()
}
