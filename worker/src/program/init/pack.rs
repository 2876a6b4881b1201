//! Packs the files that come back. Nothing of the program runs any more, so its files do not change.

use std::{
    fs::{self, File, Metadata},
    io::{self, BufWriter, Read, Write},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::Path,
};

use gpufleet_schema::host_program::stays_inside;
use tar::{Builder, EntryType, Header};
use walkdir::{DirEntry, WalkDir};

use super::selection::Selection;

/// Why files can't be packed: what, why, and what the user can do.
#[derive(Debug, thiserror::Error)]
pub(super) enum PackError {
    #[error("failed to read {name:?}: {source}; let the program make its files readable")]
    Read { name: String, source: io::Error },
    #[error("the files to download have more than {0} bytes, the worker's limit for a program; download less")]
    TooLarge(u64),
    #[error("failed to write the archive of the files: {0}; free space in the worker's work folder")]
    Write(#[source] io::Error),
}

/// A file of bounded size. A write beyond it fails with [`io::ErrorKind::FileTooLarge`].
struct Bounded<'a> {
    file: BufWriter<&'a File>,
    bytes: u64,
    bytes_max: u64,
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.bytes_max - self.bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Packs the selected files of a folder into the archive. Returns the archive's size in bytes. `note` gets a line for each entry that
/// can't be packed.
pub(super) fn pack(
    folder: &Path,
    selection: &Selection,
    archive: &File,
    bytes_max: u64,
    mut note: impl FnMut(&str),
) -> Result<u64, PackError> {
    let bounded = Bounded { file: BufWriter::new(archive), bytes: 0, bytes_max };
    let mut archive = Builder::new(bounded);
    let write = |error: io::Error| match error.kind() {
        io::ErrorKind::FileTooLarge => PackError::TooLarge(bytes_max),
        _ => PackError::Write(error),
    };
    for entry in WalkDir::new(folder).min_depth(1).sort_by_file_name() {
        let entry = entry.map_err(|error| unreadable(folder, error))?;
        let name = entry.path().strip_prefix(folder).expect("the walk is in the folder");
        if selection.has(name) {
            append(&mut archive, &entry, name, &mut note, write)?;
        }
    }
    let mut bounded = archive.into_inner().map_err(write)?;
    bounded.flush().map_err(write)?;
    Ok(bounded.bytes)
}

fn unreadable(folder: &Path, error: walkdir::Error) -> PackError {
    let name = error.path().map(|path| path.strip_prefix(folder).unwrap_or(path).display().to_string());
    let source = error.into_io_error().unwrap_or_else(|| io::ErrorKind::Other.into());
    PackError::Read { name: name.unwrap_or_default(), source }
}

fn append(
    archive: &mut Builder<Bounded<'_>>,
    entry: &DirEntry,
    name: &Path,
    note: &mut impl FnMut(&str),
    write: impl Fn(io::Error) -> PackError,
) -> Result<(), PackError> {
    let read = |source| PackError::Read { name: name.display().to_string(), source };
    let found = entry.path().symlink_metadata().map_err(read)?;
    let kind = found.file_type();
    if kind.is_file() {
        let source = Source { file: File::open(entry.path()).map_err(read)?, name };
        let mut header = header(EntryType::Regular, &found);
        header.set_size(found.len());
        let appended = archive.append_data(&mut header, name, source);
        return appended.map_err(|error| error.downcast::<PackError>().unwrap_or_else(write));
    }
    if kind.is_dir() {
        return archive.append_data(&mut header(EntryType::Directory, &found), name, io::empty()).map_err(write);
    }
    if kind.is_symlink() {
        let target = fs::read_link(entry.path()).map_err(read)?;
        if stays_inside(name.parent().unwrap_or(Path::new("")), &target) {
            return archive.append_link(&mut header(EntryType::Symlink, &found), name, &target).map_err(write);
        }
        note(&format!("left out the link {name:?}, because it leaves the folder of files"));
        return Ok(());
    }
    let what = if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    note(&format!("left out {name:?}, because it is {what}"));
    Ok(())
}

fn header(kind: EntryType, found: &Metadata) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(found.mode() & 0o777);
    header.set_mtime(found.mtime().try_into().unwrap_or(0));
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header
}

/// A file whose errors can be told from those of the archive.
struct Source<'a> {
    file: File,
    name: &'a Path,
}

impl Read for Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let name = || self.name.display().to_string();
        self.file.read(buffer).map_err(|source| io::Error::other(PackError::Read { name: name(), source }))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        io::{Seek as _, SeekFrom},
        os::unix::{fs::PermissionsExt as _, net::UnixListener},
        path::PathBuf,
    };

    use super::*;

    fn packed(folder: &Path, globs: &[&str], bytes_max: u64) -> (Result<u64, String>, File, Vec<String>) {
        let globs: Vec<String> = globs.iter().map(|glob| (*glob).to_owned()).collect();
        let (mut file, mut notes) = (tempfile::tempfile().unwrap(), Vec::new());
        let selection = Selection::of(&globs).unwrap();
        let packed = pack(folder, &selection, &file, bytes_max, |line| notes.push(line.to_owned()));
        file.seek(SeekFrom::Start(0)).unwrap();
        (packed.map_err(|error| error.to_string()), file, notes)
    }

    fn entries(archive: File) -> BTreeMap<PathBuf, (EntryType, u32, String)> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            if let Some(target) = entry.link_name().unwrap() {
                text = target.display().to_string();
            }
            let header = entry.header();
            (entry.path().unwrap().into_owned(), (header.entry_type(), header.mode().unwrap(), text))
        });
        entries.collect()
    }

    #[test]
    fn what_matches_is_packed_with_its_executable_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("out/deep")).unwrap();
        for name in ["out/a", "out/deep/run.sh", "other"] {
            fs::write(path(name), name).unwrap();
            fs::set_permissions(path(name), fs::Permissions::from_mode(0o644)).unwrap();
        }
        fs::set_permissions(path("out/deep/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("../a", path("out/deep/link")).unwrap();
        let (bytes, archive, notes) = packed(folder.path(), &["out/**"], 1 << 20);
        assert_eq!(archive.metadata().unwrap().len(), bytes.unwrap());
        assert!(notes.is_empty());
        let entries = entries(archive);
        let names: Vec<_> = entries.keys().map(|name| name.to_str().unwrap()).collect();
        assert_eq!(names, ["out/a", "out/deep", "out/deep/link", "out/deep/run.sh"]);
        assert_eq!(entries[Path::new("out/a")], (EntryType::Regular, 0o644, "out/a".to_owned()));
        assert_eq!(entries[Path::new("out/deep/run.sh")].1, 0o755);
        assert_eq!(entries[Path::new("out/deep/link")].2, "../a");
    }

    #[test]
    fn links_to_the_outside_and_sockets_are_left_out_with_a_note() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("absolute")).unwrap();
        std::os::unix::fs::symlink("../x", folder.path().join("up")).unwrap();
        let _socket = UnixListener::bind(folder.path().join("socket")).unwrap();
        let (bytes, archive, notes) = packed(folder.path(), &["**"], 1 << 20);
        assert!(bytes.is_ok() && entries(archive).is_empty());
        assert_eq!(notes.len(), 3);
        assert!(notes[0].contains("\"absolute\"") && notes[1].contains("a socket"), "{notes:?}");
    }

    #[test]
    fn globs_that_match_nothing_give_an_empty_archive() {
        let folder = tempfile::tempdir().unwrap();
        let (bytes, archive, _) = packed(folder.path(), &["out/**"], 1 << 20);
        assert!(bytes.unwrap() > 0 && entries(archive).is_empty());
    }

    #[test]
    fn more_than_the_limit_and_unreadable_files_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("big"), [0; 4096]).unwrap();
        let (bytes, ..) = packed(folder.path(), &["big"], 4096);
        assert!(bytes.unwrap_err().contains("more than 4096 bytes"));
        let error = unreadable(
            folder.path(),
            WalkDir::new(folder.path().join("gone")).into_iter().next().unwrap().unwrap_err(),
        );
        assert!(error.to_string().contains("\"gone\""), "{error}");
    }
}
