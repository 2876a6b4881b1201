//! Errors of starting, watching and stopping processes.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use crate::logs;

/// Why a part of the fleet could not be started, reached or stopped.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    #[error("failed to {action} {}: {source}", path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("failed to find the program {name}: {hint}")]
    ProgramMissing { name: String, hint: String },
    #[error("failed to start {name}: {source}")]
    Spawn { name: String, source: io::Error },
    #[error("failed to start {name}: the process exited ({outcome}); the end of its log {log}{tail}", log = tail.path.display())]
    Ended { name: String, outcome: String, tail: LogTail },
    #[error("failed to wait for {name}: it is not ready after {seconds} s; the end of its log {log}{tail}", log = tail.path.display())]
    NotReady { name: String, seconds: u64, tail: LogTail },
    #[error("failed to stop {name}: process {pid} is still running after SIGKILL")]
    WillNotDie { name: String, pid: u32 },
    #[error("failed to run {command}: {detail}")]
    Command { command: String, detail: String },
    #[error("failed to ask the broker to {request}: {detail}")]
    Control { request: &'static str, detail: String },
    #[error("failed to use the name {name:?}: a name has at most 60 characters, each a-z, 0-9, '-' or '_'")]
    Name { name: String },
    #[error("failed to keep the data of Postgres in {}: user {user} may not enter {}; choose another folder", path.display(), barrier.display())]
    Barrier { path: PathBuf, barrier: PathBuf, user: String },
    #[error("failed to use the folder {}: the paths of its Unix sockets would be longer than the system allows; choose a shorter path", path.display())]
    PathTooLong { path: PathBuf },
    #[error("failed to find your state folder: set HOME or XDG_STATE_HOME to an absolute path, or give a folder")]
    NoHome,
    #[error("failed to lock {}: another command is starting or stopping this fleet, and has not finished within {seconds} s; wait for it and try again", path.display())]
    Locked { path: PathBuf, seconds: u64 },
    #[error("failed to find a free port on 127.0.0.1 after {tries} tries")]
    NoPort { tries: u32 },
    #[error(
        "failed to start {service}: {holder} uses its port {port}, which the other processes of the fleet rely on; stop that process and try again, \
         or let the fleet choose new ports: `gpufleet local down`, delete {}, `gpufleet local up`",
        record.display()
    )]
    PortTaken { service: String, port: u16, holder: String, record: PathBuf },
}

/// The last lines of a log, for an error message.
pub struct LogTail {
    path: PathBuf,
    lines: Vec<String>,
}

impl LogTail {
    /// Number of lines: enough to hold a Postgres or Erlang start error.
    const LINES: usize = 15;

    pub fn read(path: &Path) -> Self {
        let lines = logs::last_lines(path, Self::LINES).unwrap_or_else(|error| vec![format!("(unreadable: {error})")]);
        Self { path: path.to_owned(), lines }
    }
}

impl fmt::Display for LogTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lines.is_empty() {
            return f.write_str(" is empty");
        }
        f.write_str(":")?;
        self.lines.iter().try_for_each(|line| write!(f, "\n  | {line}"))
    }
}

impl fmt::Debug for LogTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogTail").field("path", &self.path).field("lines", &self.lines.len()).finish()
    }
}

/// Adds the action and the file to an I/O error.
pub(crate) trait FileContext<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, LocalError>;
}

impl<T> FileContext<T> for io::Result<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, LocalError> {
        self.map_err(|source| LocalError::File { action, path: path.to_owned(), source })
    }
}

/// A name that can stand in file names, vhosts and database names without quoting.
pub(crate) fn checked_name(name: &str) -> Result<&str, LocalError> {
    /// Maximum length of a name. Postgres cuts identifiers at 63 bytes.
    const BYTES_MAX: usize = 60;
    let fits = !name.is_empty() && name.len() <= BYTES_MAX;
    if fits && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_')) {
        Ok(name)
    } else {
        Err(LocalError::Name { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_tail_shows_the_last_lines() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), (0..100).map(|n| format!("line {n}\n\n")).collect::<String>()).unwrap();
        let text = LogTail::read(file.path()).to_string();
        assert!(text.contains("line 99") && text.contains("line 85") && !text.contains("line 84"), "{text}");
    }

    #[test]
    fn names_that_would_need_quoting_are_refused() {
        for bad in ["", "a b", "a\"", "A", "a/b", "a;drop", &"x".repeat(61)] {
            assert!(checked_name(bad).is_err(), "{bad}");
        }
        assert!(checked_name("team-a_2").is_ok());
    }
}
