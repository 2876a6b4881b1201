//! `gpufleet-ledger`: the program that keeps the record of jobs.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpufleet_ledger::command::main()
}
