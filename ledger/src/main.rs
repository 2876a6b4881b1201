//! `gpufleet-ledger`: the program that records jobs in Postgres.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpufleet_ledger::command::main()
}
