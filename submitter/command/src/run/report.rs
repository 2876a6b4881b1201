//! The report of a run for programs: `gpufleet run --report FILE`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use gpufleet::schema::{JobId, RanOn, SessionUse};
use serde::Serialize;

use super::{
    on_worker::files::Saved,
    outcome::{self, Outcome, SessionEnd},
    program::ProgramEnd,
};
use crate::complaint::Complaint;

/// A report, also of a run whose command did not start.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    exit: u8,
    /// Why the exit code is not the command's.
    pub reason: Option<String>,
    command: Option<ReportedEnd>,
    sessions: Vec<ReportedSession>,
    used: Option<ReportedUse>,
    program: Option<ReportedProgram>,
}

/// A command that ran on a worker's machine.
#[derive(Debug, Serialize)]
struct ReportedProgram {
    job_id: JobId,
    ran_on: Option<RanOn>,
    folder: Option<PathBuf>,
    files: Vec<PathBuf>,
}

#[derive(Debug, Serialize)]
struct ReportedEnd {
    exit_code: Option<i32>,
    signal: Option<i32>,
}

#[derive(Debug, Serialize)]
struct ReportedSession {
    job_id: JobId,
    outcome: Option<String>,
    failure_code: Option<String>,
    reason: Option<String>,
    ended_early: bool,
    ran_on: RanOn,
    memory_bytes: u64,
    used: ReportedUse,
}

#[derive(Debug, Serialize)]
struct ReportedUse {
    processes: u32,
    calls: u64,
    waits: u64,
    sent_bytes: u64,
    received_bytes: u64,
    busy_us: u64,
    memory_bytes: u64,
    memory_bytes_peak: u64,
}

impl Report {
    /// Adds the sessions that were open, and how the command ended if it was started.
    pub fn add(&mut self, program: Option<ProgramEnd>, ends: &[SessionEnd]) {
        self.command = program.map(|end| ReportedEnd { exit_code: end.exit_code(), signal: end.signal() });
        self.sessions = ends.iter().map(ReportedSession::of).collect();
        self.used = Some(ReportedUse::of(&outcome::sum(ends)));
    }

    /// Adds the command that ran on a worker, and its files.
    pub fn add_program(
        &mut self,
        job_id: JobId,
        end: &Result<ProgramEnd, Complaint>,
        ran_on: Option<&RanOn>,
        saved: Option<&Saved>,
    ) {
        self.command = end.as_ref().ok().map(|end| ReportedEnd { exit_code: end.exit_code(), signal: end.signal() });
        self.program = Some(ReportedProgram {
            job_id,
            ran_on: ran_on.cloned(),
            folder: saved.map(|saved| saved.folder.clone()),
            files: saved.map(|saved| saved.unpacked.written.clone()).unwrap_or_default(),
        });
    }

    /// Whether a command on a worker has ended.
    pub fn has_program(&self) -> bool {
        self.program.is_some()
    }

    /// Returns the path here of a file that came back from a worker.
    pub fn file(&self, name: &Path) -> Option<PathBuf> {
        let ReportedProgram { folder, files, .. } = self.program.as_ref()?;
        files.iter().find(|file| *file == name).and_then(|file| Some(folder.as_ref()?.join(file)))
    }

    pub fn write(&mut self, path: &Path, exit: u8) -> io::Result<()> {
        self.exit = exit;
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        fs::write(path, format!("{text}\n"))
    }
}

impl ReportedSession {
    fn of(end: &SessionEnd) -> Self {
        let failure = match &end.outcome {
            Outcome::Failed(failed) => failed.failure.as_ref(),
            Outcome::Succeeded | Outcome::Unknown => None,
        };
        Self {
            job_id: end.job_id,
            outcome: match &end.outcome {
                Outcome::Succeeded => Some("succeeded".to_owned()),
                Outcome::Failed(failed) => Some(failed.state.name().to_owned()),
                Outcome::Unknown => None,
            },
            failure_code: failure.map(|failure| failure.code.name().to_owned()),
            reason: end.reason().map(str::to_owned),
            ended_early: end.is_early,
            ran_on: end.ran_on.clone(),
            memory_bytes: end.memory_bytes,
            used: ReportedUse::of(&end.used()),
        }
    }
}

impl ReportedUse {
    fn of(used: &SessionUse) -> Self {
        Self {
            processes: used.processes,
            calls: used.calls,
            waits: used.waits,
            sent_bytes: used.sent_bytes,
            received_bytes: used.received_bytes,
            busy_us: used.busy_us,
            memory_bytes: used.memory_bytes,
            memory_bytes_peak: used.memory_bytes_peak,
        }
    }
}
