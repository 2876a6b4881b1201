//! Unpacks the user's files. The archive is a stranger's: what it may not have is refused before it is written, and Landlock confines this
//! process to the folder of files.

use std::{
    fs::{self, File, Permissions},
    io::{self, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use gpufleet_schema::host_program::stays_inside;
use tar::{Archive, Entry, EntryType};

/// Why an archive can't be unpacked: what, why, and what the user can do.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnpackError {
    #[error("failed to read the uploaded archive: {0}; upload a tar archive, as gpufleet run --upload makes it")]
    Archive(#[source] io::Error),
    #[error("the uploaded archive has {name:?}, {reason}; leave it out")]
    Entry { name: String, reason: &'static str },
    #[error(
        "the uploaded files have more than {0} bytes, the worker's limit for a program; upload less, or put large data in the environment"
    )]
    TooLarge(u64),
    #[error("failed to unpack {name:?}: {source}; check the archive and the worker's disk")]
    Write { name: String, source: io::Error },
}

/// Unpacks the archive into a folder, with at most this many bytes.
pub(super) fn unpack(archive: File, folder: &Path, bytes_max: u64) -> Result<(), UnpackError> {
    let mut archive = Archive::new(BufReader::new(archive));
    let mut bytes: u64 = 0;
    let mut folders = Vec::new();
    for entry in archive.entries().map_err(UnpackError::Archive)? {
        let mut entry = entry.map_err(UnpackError::Archive)?;
        if entry.header().entry_type() == EntryType::XGlobalHeader {
            continue;
        }
        let path = checked_path(&entry)?;
        bytes = bytes.saturating_add(entry.size());
        if bytes > bytes_max {
            return Err(UnpackError::TooLarge(bytes_max));
        }
        let error = |source| UnpackError::Write { name: path.display().to_string(), source };
        if entry.header().entry_type() == EntryType::Directory {
            fs::create_dir_all(folder.join(&path)).map_err(error)?;
            folders.push((folder.join(&path), entry.header().mode().map_err(UnpackError::Archive)?));
        } else if !entry.unpack_in(folder).map_err(|wrapped| error(cause(wrapped)))? {
            return Err(UnpackError::Entry { name: path.display().to_string(), reason: "which leaves the folder" });
        }
    }
    // The folders come last, so that one that can't be written gets its files.
    for (path, mode) in folders.into_iter().rev() {
        let permissions = Permissions::from_mode(mode & 0o777 | 0o700);
        fs::set_permissions(&path, permissions)
            .map_err(|source| UnpackError::Write { name: path.display().to_string(), source })?;
    }
    Ok(())
}

/// Returns the path of an entry that may be unpacked.
fn checked_path(entry: &Entry<'_, impl io::Read>) -> Result<PathBuf, UnpackError> {
    let path = entry.path().map_err(UnpackError::Archive)?.into_owned();
    let refuse = |reason| Err(UnpackError::Entry { name: path.display().to_string(), reason });
    if !stays_inside(Path::new(""), &path) || path.components().any(|part| part == std::path::Component::ParentDir) {
        return refuse("which leaves the folder");
    }
    let target =
        || Ok(entry.link_name().map_err(UnpackError::Archive)?.map(|target| target.into_owned()).unwrap_or_default());
    match entry.header().entry_type() {
        EntryType::Regular | EntryType::Continuous | EntryType::Directory => {}
        EntryType::Symlink if stays_inside(path.parent().unwrap_or(Path::new("")), &target()?) => {}
        EntryType::Link if stays_inside(Path::new(""), &target()?) => {}
        EntryType::Symlink | EntryType::Link => return refuse("a link to a file outside of the folder"),
        EntryType::Char | EntryType::Block => return refuse("a device"),
        EntryType::Fifo => return refuse("a named pipe"),
        EntryType::GNUSparse => return refuse("a sparse file"),
        _ => return refuse("which is neither a file nor a folder nor a link"),
    }
    Ok(path)
}

/// Returns the error of the system that the library wraps.
fn cause(error: io::Error) -> io::Error {
    let mut source = error.get_ref().and_then(|inner| inner.source());
    while let Some(inner) = source {
        if let Some(code) = inner.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(code);
        }
        source = inner.source();
    }
    error
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, SeekFrom};

    use tar::{Builder, Header};

    use super::*;

    /// Appends an entry whose names are not checked.
    fn append(archive: &mut Builder<File>, kind: EntryType, name: &str, target: &str, content: &[u8]) {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        let gnu = header.as_gnu_mut().unwrap();
        gnu.name[..name.len()].copy_from_slice(name.as_bytes());
        gnu.linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_cksum();
        archive.append(&header, content).unwrap();
    }

    /// A folder in an empty one.
    struct Folder {
        path: PathBuf,
        _outer: tempfile::TempDir,
    }

    impl Folder {
        fn path(&self) -> &Path {
            &self.path
        }
    }

    fn unpack_entries(entries: &[(EntryType, &str, &str)]) -> (Folder, Result<(), String>) {
        let outer = tempfile::tempdir().unwrap();
        let folder = Folder { path: outer.path().join("files"), _outer: outer };
        fs::create_dir(folder.path()).unwrap();
        let mut archive = Builder::new(tempfile::tempfile().unwrap());
        for (kind, name, target) in entries {
            let content: &[u8] = if *kind == EntryType::Regular { b"text" } else { b"" };
            append(&mut archive, *kind, name, target, content);
        }
        let mut file = archive.into_inner().unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        let unpacked = unpack(file, folder.path(), 8).map_err(|error| error.to_string());
        (folder, unpacked)
    }

    #[test]
    fn files_folders_and_links_are_unpacked() {
        let (folder, unpacked) = unpack_entries(&[
            (EntryType::Directory, "a/", ""),
            (EntryType::Regular, "a/b", ""),
            (EntryType::Symlink, "a/link", "../c"),
            (EntryType::Link, "hard", "a/b"),
            (EntryType::Regular, "./c", ""),
        ]);
        unpacked.unwrap();
        for name in ["a/b", "a/link", "hard", "c"] {
            assert_eq!(fs::read(folder.path().join(name)).unwrap(), b"text", "{name}");
        }
        assert_eq!(fs::metadata(folder.path().join("c")).unwrap().permissions().mode() & 0o777, 0o755);
    }

    #[test]
    fn an_entry_that_would_reach_outside_is_refused_by_its_name() {
        for (kind, name, target) in [
            (EntryType::Regular, "../evil", ""),
            (EntryType::Regular, "/evil", ""),
            (EntryType::Regular, "a/../evil", ""),
            (EntryType::Symlink, "evil", "/etc/passwd"),
            (EntryType::Symlink, "a/evil", "../../x"),
            (EntryType::Link, "evil", "../x"),
            (EntryType::Char, "evil", ""),
            (EntryType::Block, "evil", ""),
            (EntryType::Fifo, "evil", ""),
        ] {
            let (folder, unpacked) = unpack_entries(&[(kind, name, target)]);
            let refused = unpacked.unwrap_err();
            assert!(refused.contains(&format!("{name:?}")), "{refused}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{name}");
        }
    }

    #[test]
    fn nothing_is_unpacked_through_a_chain_of_links_to_the_outside() {
        let (folder, unpacked) = unpack_entries(&[
            (EntryType::Directory, "a/b", ""),
            (EntryType::Symlink, "a/b/up", "../.."),
            (EntryType::Symlink, "out", "a/b/up/.."),
            (EntryType::Regular, "out/evil", ""),
        ]);
        assert!(unpacked.is_err());
        assert_eq!(fs::read_dir(folder.path().parent().unwrap()).unwrap().count(), 1, "only the folder itself");
    }

    #[test]
    fn more_than_the_limit_is_refused() {
        let one = (EntryType::Regular, "a", "");
        assert!(unpack_entries(&[one, one]).1.is_ok());
        let refused = unpack_entries(&[one, one, one]).1.unwrap_err();
        assert!(refused.contains("more than 8 bytes"), "{refused}");
    }

    #[test]
    fn bytes_that_are_no_archive_are_refused() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &[7; 2048]).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        assert!(unpack(file, folder.path(), 1).unwrap_err().to_string().contains("upload a tar archive"));
    }
}
