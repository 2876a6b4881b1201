//! `gpufleet run`: runs a program on this machine with the GPU of a worker, or with `--on-worker` on the worker's machine ([`on_worker`]).
//!
//! Here, the program's driver calls go to the worker through a relay in this process: see [`gpufleet::session`]. Until the command starts, a failure
//! has an exit code of the table. Afterwards the exit code is the command's, unless the fleet ended the session first.

use std::{ffi::OsString, process::ExitCode, time::Instant};

use futures::future::join_all;
use gpufleet::{
    Fleet, Job,
    session::{Relay, SessionFolder},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{complaint::Complaint, connection, exit::Exit, files, submit};

mod ending;
mod label;
mod leases;
mod library;
mod lines;
pub(crate) mod on_worker;
mod options;
mod outcome;
mod program;
mod report;
mod signals;

use ending::Ending;
use leases::Open;
use lines::Lines;
pub use options::Options;
use outcome::SessionEnd;
use program::ProgramEnd;
pub use report::Report;
use signals::Signals;

pub async fn run(options: Options) -> Result<ExitCode, Complaint> {
    let (code, _) = Box::pin(reported(&options)).await?;
    Ok(ExitCode::from(code))
}

/// Returns the exit code, and the report also if the options ask for no file of it.
pub async fn reported(options: &Options) -> Result<(u8, Report), Complaint> {
    let lines = Lines { is_quiet: options.quiet };
    let mut report = Report::default();
    let mut signals = Signals::listen()
        .map_err(|error| Complaint::new(Exit::Internal, format!("failed to listen for signals: {error}")))?;
    let ended = match options.host.on_worker {
        true => Box::pin(on_worker::run(options, lines, &mut signals, &mut report)).await,
        false => Box::pin(session(options, lines, &mut signals, &mut report)).await,
    };
    let code = ended.unwrap_or_else(|complaint| {
        lines.complain(&complaint);
        report.reason = Some(complaint.message.clone());
        match complaint.exit {
            Exit::Interrupted => signals.exit_code(),
            exit => exit.code(),
        }
    });
    if let Some(path) = &options.report
        && let Err(error) = report.write(path, code)
    {
        lines.warn(&format!("failed to write the report to {}: {error}", path.display()));
    }
    Ok((code, report))
}

/// Returns the exit code.
async fn session(options: &Options, lines: Lines, signals: &mut Signals, report: &mut Report) -> Result<u8, Complaint> {
    let jobs = jobs(options)?;
    let library = library::find(options.library.as_deref())?;
    if let Some(path) = &options.report {
        files::check_folder(path)?;
    }
    let folder = SessionFolder::create(&library).map_err(|error| {
        Complaint::new(Exit::Internal, format!("failed to create the folder of the session: {error}"))
            .hint("check that TMPDIR names a folder that you may write to")
    })?;
    let fleet = tokio::select! {
        fleet = connection::producer(&options.producer, Fleet::builder()) => fleet?,
        _ = signals.next() => {
            return Err(Complaint::new(Exit::Interrupted, "interrupted before a session was requested"));
        }
    };
    let opened = Box::pin(leases::take(&fleet, jobs, options, lines, signals)).await;
    let ended = match opened {
        Ok(sessions) => Box::pin(with_leases(options, sessions, &folder, lines, signals, report)).await,
        Err(complaint) => Err(complaint),
    };
    let _closed_in_time = tokio::time::timeout(connection::CLOSE_DEADLINE, fleet.close()).await;
    ended
}

/// Runs the command while the leases are open.
async fn with_leases(
    options: &Options,
    sessions: Vec<Open>,
    folder: &SessionFolder,
    lines: Lines,
    signals: &mut Signals,
    report: &mut Report,
) -> Result<u8, Complaint> {
    let begun = Instant::now();
    let routes = sessions.iter().map(|session| session.lease.route()).collect();
    let (relay, rejections) = Relay::start(&folder.socket(), routes).map_err(|error| {
        Complaint::new(Exit::Internal, format!("failed to listen for the command's processes: {error}"))
    })?;
    let (told, ended) = watch::channel(None);
    let hurry = CancellationToken::new();
    let attend = |session| tokio::spawn(outcome::attend(session, ended.clone(), hurry.clone(), lines));
    let attending: Vec<_> = sessions.into_iter().map(attend).collect();
    let ran = match program::start(&options.command, folder) {
        Ok(mut child) => program::wait(&mut child, signals, rejections, lines).await,
        Err(complaint) => Err(complaint),
    };
    let program = match &ran {
        Ok(program) => *program,
        // The worker must know that nothing runs.
        Err(complaint) => ProgramEnd::Code(complaint.exit.code().into()),
    };
    told.send_replace(Some(program));
    let mut attending = join_all(attending);
    let attended = tokio::select! {
        attended = &mut attending => attended,
        // The workers know how the command ended, so only the outcomes are missing.
        _ = signals.next() => {
            hurry.cancel();
            attending.await
        }
    };
    // A task ends with an error only if it panics.
    let ends: Vec<SessionEnd> = attended.into_iter().filter_map(Result::ok).collect();
    drop(relay);
    report.add(ran.is_ok().then_some(program), &ends);
    ran?;
    lines.info(&lines::summary(begun.elapsed(), &outcome::sum(&ends)));
    let Ending { code, note } = ending::decide(program, outcome::cut(&ends).as_ref(), folder.has_lacked());
    report.reason = note.clone();
    if let Some(note) = note {
        lines.warn(&note);
    }
    Ok(code)
}

/// The jobs to submit: one for each session.
fn jobs(options: &Options) -> Result<Vec<Job>, Complaint> {
    submit::given_once(options.job.label.iter().map(|label| ("label", &label.key)))?;
    let jobs: Vec<Job> = (0..options.sessions.unwrap_or(1)).map(|_| options.request()).collect();
    if let Some(job) = jobs.first() {
        job.clone().build().map_err(|problem| submit::invalid(&problem, job.program()))?;
    }
    Ok(jobs)
}

/// The command and its arguments.
type CommandLine = [OsString];

#[cfg(test)]
mod tests;
