//! The command line: from what was typed to an exit code.
//!
//! [`command_line`] has the options as typed, and each command's file interprets and runs them. [`complaint`] renders errors for
//! people, and [`exit`] lists the codes for scripts. Only data goes to stdout.

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _};
use gpufleet_service::log_filter;

mod actions;
mod blobs;
mod cancel;
mod catch_up;
mod command_line;
mod complaint;
mod completions;
mod connection;
mod dead;
mod doctor;
mod environment;
mod exit;
mod export;
mod fetch;
mod files;
mod groups;
mod history;
mod init;
mod job_options;
mod json;
mod kept;
mod kernels;
mod keygen;
mod local;
mod logs;
mod lookup;
mod man;
mod map;
mod notebook;
mod options;
mod outage;
mod output;
mod permissions;
mod pools;
mod printed;
mod profile;
mod progress;
mod progress_terminal;
mod quantity;
mod recent;
mod report;
mod requirements;
mod rerun;
mod run;
mod show;
mod signature;
mod snippet;
mod source;
mod spec;
mod statistics;
mod stats;
mod submit;
mod suggestion;
mod table;
mod time;
mod top;
mod usage;
mod wait;
mod waiting;
mod why;
mod workers;

use command_line::{Command, Options};
use complaint::Complaint;
use exit::Exit;

pub use kernels::example;

/// The command line's definition, from which its reference page is generated.
pub fn command() -> clap::Command {
    groups::grouped(Options::command())
}

/// Runs the command that the process was started with.
pub fn run() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let profile = profile::choose(&arguments);
    let command = match &profile {
        Ok(profile) => profile.apply(command()),
        // Help does not need it.
        Err(_) => command(),
    };
    let first = arguments.get(1).and_then(|word| word.to_str()).map(str::to_owned);
    let parsed = command.try_get_matches_from(arguments).and_then(|matches| Options::from_arg_matches(&matches));
    let options = match parsed {
        Ok(options) => options,
        Err(mut error) => {
            suggestion::correct(&mut error, first.as_deref());
            // clap prints help and version to stdout, and errors to stderr. Nothing can report a failure to print.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Success.into() };
        }
    };
    start_log();
    profile.and_then(|_| execute(options)).unwrap_or_else(|complaint| {
        output::note(complaint.render(output::stderr_has_colour()).trim_end());
        complaint.exit.into()
    })
}

fn execute(options: Options) -> Result<ExitCode, Complaint> {
    let exit = match options.command {
        // It exits with the code of the user's command.
        Command::Run(options) => return block_on(run::run(*options)),
        Command::Notebook(options) => return block_on(notebook::run(options)),
        Command::Completions(options) => completions::run(&options, Options::command()),
        Command::Init(options) => init::run(&options),
        Command::Man(options) => man::run(&options, Options::command()),
        Command::Kernels(options) => kernels::run(&options),
        Command::Keygen(options) => keygen::run(&options),
        Command::Permissions(options) => permissions::run(&options),
        Command::Blobs(options) => block_on(blobs::run(&options)),
        Command::History(options) => block_on(history::run(&options)),
        Command::Export(options) => block_on(export::run(&options)),
        Command::Show(options) => block_on(show::run(&options)),
        Command::Logs(options) => block_on(logs::run(&options)),
        Command::Why(options) => block_on(why::run(&options)),
        Command::Report(options) => block_on(report::run(&options)),
        Command::Stats(options) => block_on(stats::run(&options)),
        Command::Usage(options) => block_on(usage::run(&options)),
        Command::Pools(options) => block_on(pools::run(&options)),
        Command::Top(options) => block_on(top::run(&options)),
        Command::Wait(options) => block_on(wait::run(&options)),
        Command::Fetch(options) => block_on(fetch::run(&options)),
        Command::Local(options) => block_on(local::run(&options)),
        Command::Cancel(options) => block_on(cancel::run(&options)),
        Command::Dead(options) => block_on(dead::run(&options)),
        Command::Retry(options) => block_on(dead::replay(&options)),
        Command::Doctor(options) => block_on(doctor::run(&options)),
        Command::Rerun(options) => block_on(rerun::run(&options)),
        Command::Actions(options) => block_on(actions::run(&options)),
        Command::Workers(options) => block_on(workers::run(&options)),
        Command::Submit(options) => block_on(submit::run(*options)),
        Command::Map(options) => block_on(map::run(*options)),
    };
    exit.map(ExitCode::from)
}

fn block_on<T>(command: impl Future<Output = Result<T, Complaint>>) -> Result<T, Complaint> {
    // A thread beside this one, which may be busy reading files while the broker expects heartbeats.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| Complaint::new(Exit::Internal, format!("failed to start: {error}")))?;
    let result = runtime.block_on(command);
    // The runtime ends with the process. Shutting it down would wait for a hanging name lookup, and lapin's thread would panic during a
    // connection attempt.
    std::mem::forget(runtime);
    result
}

/// Off by default, because log lines of libraries would mix with the command's own messages.
fn start_log() {
    tracing_subscriber::fmt()
        .with_env_filter(log_filter("off"))
        .with_writer(std::io::stderr)
        .with_ansi(output::stderr_has_colour())
        .init();
}
