//! The `gpufleet` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpufleet_cli::run()
}
