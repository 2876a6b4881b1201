//! A file that appears whole or not at all.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use tempfile::{Builder, PathPersistError, TempPath};

/// A file under another name until it is complete. Dropped before that, it is removed.
#[derive(Debug)]
pub struct PartialFile {
    file: File,
    path: PathBuf,
    /// The name until then. None for what is no plain file: a device file such as /dev/null can't be replaced, and a link
    /// should stay one.
    part: Option<TempPath>,
}

impl PartialFile {
    pub fn create(path: &Path) -> io::Result<Self> {
        if fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return Ok(Self { file: File::create(path)?, path: path.to_owned(), part: None });
        }
        // The other name is short, however long this one is, and a link of that name is not followed.
        let create = |part: &Path| OpenOptions::new().write(true).create_new(true).open(part);
        let mut beside = Builder::new();
        beside.prefix(".gpufleet-").suffix(".part");
        let (file, part) = beside.make_in(path.parent().unwrap_or(path), create)?.into_parts();
        Ok(Self { file, path: path.to_owned(), part: Some(part) })
    }

    /// The name of the file once it is complete.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name, and replaces a file that has it.
    pub fn finish(self) -> io::Result<()> {
        let finished = self.part.map_or(Ok(()), |part| part.persist(&self.path));
        finished.map_err(|PathPersistError { error, .. }| error)
    }

    /// Gives the file its name, unless a file has it.
    pub fn finish_new(self) -> io::Result<()> {
        let part = self.part.ok_or(io::ErrorKind::AlreadyExists)?;
        part.persist_noclobber(&self.path).map_err(|PathPersistError { error, .. }| error)
    }
}

impl Write for PartialFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_when_it_is_complete_and_a_dropped_one_never() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.bin");
        let names = || fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        let mut file = PartialFile::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        assert!(!path.exists());
        drop(file);
        assert!(names().is_empty());
        let mut file = PartialFile::create(&path).unwrap();
        file.write_all(b"whole").unwrap();
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        let longest = folder.path().join("x".repeat(255));
        PartialFile::create(&longest).unwrap().finish().unwrap();
        fs::remove_file(&longest).unwrap();
        let other = PartialFile::create(&path).unwrap().finish_new().unwrap_err();
        assert_eq!(other.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!((names(), fs::read(&path).unwrap()), (vec!["x.bin".into()], b"whole".to_vec()));
    }
}
