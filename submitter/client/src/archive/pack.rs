//! Packs files into an archive.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, btree_map::Entry as Slot},
    fs::{self, File, Metadata},
    io::{Read as _, Write},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Component, Path, PathBuf},
};

use ignore::WalkBuilder;
use tar::{Builder, EntryType, Header};

use super::{ArchiveError, BYTES_MAX, IGNORE_FILE, link_stays_inside};

/// The files named in an error about their size.
const LARGEST: usize = 3;
/// Bytes of an entry beside the contents: its header, and the rest of the last block.
const ENTRY_BYTES: u64 = 1024;
/// The folder of git, which has the whole history.
const GIT: &str = ".git";

/// The files to pack, by their names in the archive.
#[derive(Debug, Default)]
pub struct Selection {
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Debug)]
struct Entry {
    path: PathBuf,
    metadata: Metadata,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Folder,
    File,
    Link(PathBuf),
}

impl Selection {
    /// Selects files and folders. A relative path keeps its name, so that `src` becomes `src` for the program too. Any other path keeps its
    /// last part alone. The contents of `.`, `..` and of a path that ends in `/.` become those of the program's working directory.
    ///
    /// Of a folder, `.git` and what [`IGNORE_FILE`] names are left out. An error names what can't be packed.
    pub fn of(paths: &[impl AsRef<Path>]) -> Result<Self, ArchiveError> {
        let mut selection = Self::default();
        for path in paths {
            selection.add(path.as_ref())?;
        }
        selection.check_links()?;
        let bytes = selection.bytes();
        match bytes <= BYTES_MAX {
            true => Ok(selection),
            false => Err(ArchiveError::TooLarge { bytes, largest: selection.largest() }),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of files and links.
    pub fn files(&self) -> usize {
        self.entries.values().filter(|entry| !matches!(entry.kind, Kind::Folder)).count()
    }

    /// Returns about how large the archive is.
    pub fn bytes(&self) -> u64 {
        self.entries.values().fold(0, |sum, entry| sum.saturating_add(entry.bytes()).saturating_add(ENTRY_BYTES))
    }

    /// Writes the archive, and returns the writer.
    pub fn write<W: Write>(&self, into: W) -> Result<W, ArchiveError> {
        let mut builder = Builder::new(into);
        for (name, entry) in &self.entries {
            entry.write(name, &mut builder)?;
        }
        builder.into_inner().map_err(|source| ArchiveError::Archive { source })
    }

    fn add(&mut self, path: &Path) -> Result<(), ArchiveError> {
        let name = name_of(path);
        let mut walk = WalkBuilder::new(path);
        walk.standard_filters(false).add_custom_ignore_filename(IGNORE_FILE).sort_by_file_name(Ord::cmp);
        walk.filter_entry(|entry| entry.depth() == 0 || entry.file_name() != GIT);
        for found in walk.build() {
            let found = found.map_err(|error| unreadable(path, error))?;
            if let Some(problem) = found.error() {
                return Err(ArchiveError::IgnoreFile { problem: problem.to_string() });
            }
            let below = found.path().strip_prefix(path).unwrap_or(Path::new(""));
            let name = if below.as_os_str().is_empty() { name.clone() } else { name.join(below) };
            if !name.as_os_str().is_empty() {
                self.insert(name, Entry::of(found.path(), found.depth() == 0)?)?;
            }
        }
        Ok(())
    }

    fn insert(&mut self, name: PathBuf, entry: Entry) -> Result<(), ArchiveError> {
        match self.entries.entry(name) {
            Slot::Vacant(slot) => _ = slot.insert(entry),
            Slot::Occupied(slot) => {
                let known = slot.get();
                let are_folders = matches!((&known.kind, &entry.kind), (Kind::Folder, Kind::Folder));
                // A path may be given twice, or be within another.
                let is_same =
                    (known.metadata.dev(), known.metadata.ino()) == (entry.metadata.dev(), entry.metadata.ino());
                if !are_folders && !is_same {
                    let (name, first) = (slot.key().clone(), known.path.clone());
                    return Err(ArchiveError::SameName { name, first, second: entry.path });
                }
            }
        }
        Ok(())
    }

    fn check_links(&self) -> Result<(), ArchiveError> {
        for (name, entry) in &self.entries {
            if let Kind::Link(target) = &entry.kind
                && !link_stays_inside(name, target)
            {
                return Err(ArchiveError::LinkOutside { path: entry.path.clone(), target: target.clone() });
            }
        }
        Ok(())
    }

    fn largest(&self) -> Vec<(PathBuf, u64)> {
        let mut files: Vec<_> = self.entries.values().map(|entry| (entry.path.clone(), entry.bytes())).collect();
        files.sort_by_key(|(_, bytes)| Reverse(*bytes));
        files.truncate(LARGEST);
        files
    }
}

impl Entry {
    /// `is_given`: a person named this path, so a link there stands for its target.
    fn of(path: &Path, is_given: bool) -> Result<Self, ArchiveError> {
        let unreadable = |source| ArchiveError::Read { path: path.to_owned(), source };
        let metadata = if is_given { fs::metadata(path) } else { fs::symlink_metadata(path) }.map_err(unreadable)?;
        let kind = match metadata.file_type() {
            kind if kind.is_dir() => Kind::Folder,
            kind if kind.is_file() => Kind::File,
            kind if kind.is_symlink() => Kind::Link(fs::read_link(path).map_err(unreadable)?),
            _ => return Err(ArchiveError::Special { path: path.to_owned() }),
        };
        Ok(Self { path: path.to_owned(), metadata, kind })
    }

    fn bytes(&self) -> u64 {
        if matches!(self.kind, Kind::File) { self.metadata.len() } else { 0 }
    }

    fn write(&self, name: &Path, builder: &mut Builder<impl Write>) -> Result<(), ArchiveError> {
        let mut header = self.header();
        let written = match &self.kind {
            Kind::Folder => builder.append_data(&mut header, name, std::io::empty()),
            Kind::Link(target) => builder.append_link(&mut header, name, target),
            Kind::File => return self.write_file(&mut header, name, builder),
        };
        written.map_err(|source| ArchiveError::Archive { source })
    }

    fn write_file(
        &self,
        header: &mut Header,
        name: &Path,
        builder: &mut Builder<impl Write>,
    ) -> Result<(), ArchiveError> {
        let path = || self.path.clone();
        let unreadable = |source| ArchiveError::Read { path: path(), source };
        let file = File::open(&self.path).map_err(unreadable)?;
        let mut contents = Contents { file: (&file).take(self.bytes()), read: 0, failed: false };
        let written = builder.append_data(header, name, &mut contents);
        let Contents { read, failed, .. } = contents;
        written.map_err(|source| match failed {
            true => ArchiveError::Read { path: path(), source },
            false => ArchiveError::Archive { source },
        })?;
        let now = file.metadata().map_err(unreadable)?;
        let is_same = |metadata: &Metadata| {
            (metadata.len(), metadata.mtime(), metadata.mtime_nsec())
                == (self.metadata.len(), self.metadata.mtime(), self.metadata.mtime_nsec())
        };
        if read == self.bytes() && is_same(&now) { Ok(()) } else { Err(ArchiveError::Changed { path: path() }) }
    }

    fn header(&self) -> Header {
        let mut header = Header::new_gnu();
        let (kind, mode) = match self.kind {
            Kind::Folder => (EntryType::Directory, 0o755),
            Kind::Link(_) => (EntryType::Symlink, 0o777),
            Kind::File if self.metadata.permissions().mode() & 0o111 != 0 => (EntryType::Regular, 0o755),
            Kind::File => (EntryType::Regular, 0o644),
        };
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(self.bytes());
        header.set_mtime(u64::try_from(self.metadata.mtime()).unwrap_or(0));
        header.set_uid(0);
        header.set_gid(0);
        header
    }
}

/// The contents of a file, which remembers whether reading it failed.
struct Contents<R> {
    file: R,
    read: u64,
    failed: bool,
}

impl<R: std::io::Read> std::io::Read for Contents<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(buffer).inspect_err(|_| self.failed = true)?;
        self.read += read as u64;
        Ok(read)
    }
}

/// Returns the name that a selected path has in the archive. It is empty for a folder whose contents are given, as in `.` and `src/.`.
pub fn name_of(path: &Path) -> PathBuf {
    if path.as_os_str().as_encoded_bytes().ends_with(b"/.") {
        return PathBuf::new();
    }
    let mut name = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => name.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                // `..` and `/` have no last part; their contents are those of the working directory.
                return path.file_name().map(PathBuf::from).unwrap_or_default();
            }
        }
    }
    name
}

fn unreadable(given: &Path, error: ignore::Error) -> ArchiveError {
    let path = path_of(&error).unwrap_or(given).to_owned();
    match error.into_io_error() {
        Some(source) => ArchiveError::Read { path, source },
        None => ArchiveError::Read { path, source: std::io::Error::other("it can't be walked") },
    }
}

fn path_of(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => path_of(err),
        _ => None,
    }
}
