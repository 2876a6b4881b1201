//! `gpufleet-console`: the program that shows a fleet in the browser.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpufleet_console::main()
}
