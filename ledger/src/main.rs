//! `gpufleet-ledger`: the program that keeps the record of jobs.

use std::process::ExitCode;

use clap::Parser;

mod command;

use command::{Exit, options::Options};

fn main() -> ExitCode {
    let options = Options::parse();
    command::start_logging(options.log_format);
    match command::run(options) {
        Ok(()) => Exit::Success.into(),
        Err(failure) => {
            tracing::debug!(error = ?failure.error, "failed");
            eprintln!("gpufleet-ledger: failed to {:#}", failure.error);
            failure.exit.into()
        }
    }
}
