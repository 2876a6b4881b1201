//! `gpufleet notebook run`: runs a whole notebook on the machine of a worker, with papermill of the worker's environment.
//!
//! It is a `gpufleet run --on-worker` whose command is papermill. The notebook goes up with it, and the executed notebook comes back.

use std::{path::Path, process::ExitCode};

use clap::{Args, Subcommand};

use super::{complaint::Complaint, output, run::reported};

mod document;
mod options;

use options::RunOptions;

/// Python's exit code if a module is missing, and papermill's if a cell fails.
const PYTHON_FAILED: u8 = 1;

/// Run notebooks on workers
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<RunOptions>),
}

pub async fn run(options: Options) -> Result<ExitCode, Complaint> {
    let Command::Run(options) = options.command;
    options.check()?;
    let (name, place) = (options.executed_name()?, options.place());
    let (is_detached, is_quiet) = (options.detach, options.quiet);
    let (code, report) = reported(&options.into_run()?).await?;
    let note = match report.file(Path::new(&name)) {
        Some(path) if !is_quiet => format!("the executed notebook is {}", path.display()),
        // papermill writes the notebook before the first cell runs.
        None if code == PYTHON_FAILED && !is_detached && report.has_program() => format!(
            "no executed notebook came back; if papermill or the kernel is missing, install papermill and ipykernel in {place}"
        ),
        _ => return Ok(ExitCode::from(code)),
    };
    output::note(&format!("gpufleet: {}", output::visible(&note)));
    Ok(ExitCode::from(code))
}
