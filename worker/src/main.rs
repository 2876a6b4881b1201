//! `gpufleet-worker`: the program that runs jobs next to a GPU.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpufleet_worker::command::main()
}
