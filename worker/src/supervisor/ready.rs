//! The readiness file, which exists while the worker accepts jobs.

use std::{fs, io, path::PathBuf};

use super::WorkerError;

#[derive(Debug)]
pub(super) struct ReadyFile(Option<PathBuf>);

impl ReadyFile {
    /// Removes the file if a killed worker left it behind, because this worker is not ready yet.
    pub(super) fn withdrawn(path: Option<PathBuf>) -> Result<Self, WorkerError> {
        let file = Self(path);
        match file.remove() {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(file.trouble(source)),
            _ => Ok(file),
        }
    }

    pub(super) fn announce(&self) -> Result<(), WorkerError> {
        let Some(path) = &self.0 else { return Ok(()) };
        fs::write(path, format!("{}\n", std::process::id())).map_err(|source| self.trouble(source))
    }

    fn remove(&self) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), fs::remove_file)
    }

    fn trouble(&self, source: io::Error) -> WorkerError {
        let path = self.0.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        WorkerError::ReadyFile { path, source }
    }
}

impl Drop for ReadyFile {
    fn drop(&mut self) {
        // An error means that the file does not exist, so there is nothing to remove.
        let _ = self.remove();
    }
}
