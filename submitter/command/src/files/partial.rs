//! A file that appears whole or not at all.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Names of partial files that a command tries. It writes few files at a time; others are of killed commands.
const TRIES_MAX: u32 = 1000;

/// A file under another name until it is complete. Dropped before that, it is removed.
#[derive(Debug)]
pub struct PartialFile {
    file: File,
    path: PathBuf,
    /// The name until then. None for what is no plain file: a device file such as /dev/null can't be replaced, and a link
    /// should stay one.
    part: Option<PathBuf>,
}

impl PartialFile {
    pub fn create(path: &Path) -> io::Result<Self> {
        if fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return Ok(Self { file: File::create(path)?, path: path.to_owned(), part: None });
        }
        let (file, part) = create_part(path)?;
        Ok(Self { file, path: path.to_owned(), part: Some(part) })
    }

    /// The name of the file once it is complete.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name, and replaces a file that has it.
    pub fn finish(mut self) -> io::Result<()> {
        match &self.part {
            Some(part) => fs::rename(part, &self.path)?,
            None => return Ok(()),
        }
        self.part = None;
        Ok(())
    }

    /// Gives the file its name, unless a file has it.
    pub fn finish_new(self) -> io::Result<()> {
        match &self.part {
            // The other name is removed afterwards.
            Some(part) => fs::hard_link(part, &self.path),
            None => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }
}

/// A new file beside the path. Its name is short, however long the other is, and a link of that name is not followed.
fn create_part(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut tries = 0;
    loop {
        let part = path.with_file_name(format!(".gpufleet-{}-{tries}.part", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&part) {
            Err(problem) if problem.kind() == io::ErrorKind::AlreadyExists && tries < TRIES_MAX => tries += 1,
            opened => return Ok((opened?, part)),
        }
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

impl Drop for PartialFile {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            // Nothing else can be done about a partial file that can't be removed.
            let _ = fs::remove_file(part);
        }
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
