//! A file that is being written. It gets the name of a blob when it is complete.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use gpufleet_schema::MessageId;

use super::file::PART_PREFIX;

/// A partial file, which is removed unless it gets its name.
pub(super) struct Part {
    pub(super) file: File,
    path: Option<PathBuf>,
}

impl Part {
    /// Creates a file with a unique name.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let path = name(folder);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path)?;
        Ok(Self { file, path: Some(path) })
    }

    pub(super) fn publish(mut self, name: &Path) -> io::Result<()> {
        let path = self.path.take().expect("only the methods that take the part take the path");
        let renamed = fs::rename(&path, name);
        if renamed.is_err() {
            self.path = Some(path);
        }
        renamed
    }

    pub(super) fn remove(mut self) -> io::Result<()> {
        fs::remove_file(self.path.take().expect("only the methods that take the part take the path"))
    }
}

/// A unique name for a file that is no blob.
pub(super) fn name(folder: &Path) -> PathBuf {
    folder.join(format!("{PART_PREFIX}{}", MessageId::new()))
}

impl Write for Part {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // A partial file that can't be removed now is pruned or evicted later.
            drop(fs::remove_file(path));
        }
    }
}
