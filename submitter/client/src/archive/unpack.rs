//! Unpacks an archive into a folder. The archive is untrusted: the program wrote it.

use std::{
    fs::{self, File, Permissions},
    io::{self, BufReader, Read, Seek, SeekFrom},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Component, Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use tar::{Archive, Entry, EntryType};
use tempfile::Builder;

use super::{ArchiveError, link_stays_inside};

/// What was unpacked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// The files and links that were written, relative to the folder.
    pub written: Vec<PathBuf>,
    /// The files that were there already with the same contents.
    pub unchanged: Vec<PathBuf>,
    pub bytes: u64,
}

/// An entry that is allowed, and its relative path.
enum Allowed {
    Folder,
    File,
    Link(PathBuf),
}

/// Unpacks an archive into a folder, which is created if needed. Files that exist with other contents are replaced only if `replaces` is
/// true; otherwise nothing is written.
///
/// Names that leave the folder, links to the outside and special files are refused before anything is written. Nothing is written through a
/// link.
pub fn unpack<R: Read + Seek>(archive: &mut R, folder: &Path, replaces: bool) -> Result<Unpacked, ArchiveError> {
    let paths = in_the_way(archive, folder)?;
    if !replaces && !paths.is_empty() {
        return Err(ArchiveError::Exists { folder: folder.to_owned(), paths });
    }
    fs::create_dir_all(folder).map_err(|source| ArchiveError::Write { path: folder.to_owned(), source })?;
    let mut unpacked = Unpacked::default();
    for_each(archive, |name, allowed, entry| {
        let path = folder.join(name);
        let written = write(folder, name, &allowed, entry);
        match written.map_err(|source| ArchiveError::Write { path, source })? {
            true => {
                unpacked.bytes += entry.size();
                unpacked.written.push(name.to_owned());
            }
            false if entry.header().entry_type() == EntryType::Regular => unpacked.unchanged.push(name.to_owned()),
            false => {}
        }
        Ok(())
    })?;
    Ok(unpacked)
}

/// Writes an entry. Returns whether it is a file or a link that was not there already.
fn write(folder: &Path, name: &Path, allowed: &Allowed, entry: &mut Entry<'_, impl Read>) -> io::Result<bool> {
    let path = folder.join(name);
    make_folders(folder, name.parent().unwrap_or(Path::new("")))?;
    match allowed {
        Allowed::Folder => make_folder(&path).map(|()| false),
        Allowed::Link(target) => write_link(&path, target),
        Allowed::File => write_file(&path, entry),
    }
}

/// Returns the paths in the folder that unpacking would replace: files and links with other contents, and what is in the place of a folder.
pub fn in_the_way<R: Read + Seek>(archive: &mut R, folder: &Path) -> Result<Vec<PathBuf>, ArchiveError> {
    let mut found = Vec::new();
    for_each(archive, |name, allowed, entry| {
        let path = folder.join(name);
        let parents = name.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty());
        let blocked =
            parents.filter(|parent| fs::symlink_metadata(folder.join(parent)).is_ok_and(|found| !found.is_dir()));
        if let Some(blocked) = blocked.last() {
            found.push(blocked.to_owned());
            return Ok(());
        }
        let Ok(metadata) = fs::symlink_metadata(&path) else { return Ok(()) };
        let is_same = match allowed {
            Allowed::Folder => metadata.is_dir(),
            Allowed::Link(target) => fs::read_link(&path).is_ok_and(|found| found == target),
            Allowed::File => has_contents(&path, entry).map_err(|source| ArchiveError::Read { path, source })?,
        };
        if !is_same {
            found.push(name.to_owned());
        }
        Ok(())
    })?;
    found.dedup();
    Ok(found)
}

/// Reads the archive from its start, and refuses entries that are not allowed.
fn for_each<R: Read + Seek>(
    archive: &mut R,
    mut visit: impl FnMut(&Path, Allowed, &mut Entry<'_, BufReader<&mut R>>) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let damaged = |source| ArchiveError::Damaged { source };
    archive.seek(SeekFrom::Start(0)).map_err(damaged)?;
    let mut archive = Archive::new(BufReader::new(archive));
    for entry in archive.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let name = entry.path().map_err(damaged)?.into_owned();
        let refused = |problem| ArchiveError::Refused { name: name.display().to_string(), problem };
        let relative = relative(&name).ok_or_else(|| refused("leaves the folder"))?;
        let allowed = match entry.header().entry_type() {
            EntryType::Directory => Allowed::Folder,
            EntryType::Regular => Allowed::File,
            EntryType::Symlink => {
                let target = entry.link_name().map_err(damaged)?.ok_or_else(|| refused("is a link to nothing"))?;
                if !link_stays_inside(&relative, &target) {
                    return Err(refused("is a link that leaves the folder"));
                }
                Allowed::Link(target.into_owned())
            }
            _ => return Err(refused("is neither a file, a folder nor a link")),
        };
        if !relative.as_os_str().is_empty() {
            visit(&relative, allowed, &mut entry)?;
        }
    }
    Ok(())
}

/// The name without `.`; none if it leaves the folder.
fn relative(name: &Path) -> Option<PathBuf> {
    let mut relative = PathBuf::new();
    for part in name.components() {
        match part {
            Component::Normal(part) => relative.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(relative)
}

fn make_folders(folder: &Path, below: &Path) -> io::Result<()> {
    let mut path = folder.to_owned();
    for part in below.components() {
        path.push(part);
        make_folder(&path)?;
    }
    Ok(())
}

/// Makes a folder, unless there is one. A link to a folder is not one, because it may lead elsewhere.
fn make_folder(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match fs::symlink_metadata(path)?.is_dir() {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::NotADirectory, format!("{} is no folder", path.display()))),
        },
        made => made,
    }
}

/// Returns whether the link was not there already.
fn write_link(path: &Path, target: &Path) -> io::Result<bool> {
    if fs::read_link(path).is_ok_and(|found| found == target) {
        return Ok(false);
    }
    let parent = path.parent().unwrap_or(Path::new("."));
    let link = Builder::new().prefix(".gpufleet-").make_in(parent, |path| symlink(target, path))?;
    link.persist(path).map(|_| true).map_err(|error| error.error)
}

/// Returns whether the file was not there already with these contents. Another file is replaced at once, and only when the new one is whole.
fn write_file(path: &Path, entry: &mut Entry<'_, impl Read>) -> io::Result<bool> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let is_executable = entry.header().mode()? & 0o111 != 0;
    let mode = if is_executable { 0o755 } else { 0o644 };
    let mut file = Builder::new().prefix(".gpufleet-").permissions(Permissions::from_mode(mode)).tempfile_in(parent)?;
    io::copy(entry, &mut file)?;
    if is_same_file(path, file.path())? {
        return Ok(false);
    }
    let modified = UNIX_EPOCH + Duration::from_secs(entry.header().mtime()?);
    file.as_file().set_modified(modified)?;
    file.persist(path).map(|_| true).map_err(|error| error.error)
}

/// Returns whether a plain file has the contents of the entry.
fn has_contents(path: &Path, entry: &mut Entry<'_, impl Read>) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_file() || metadata.len() != entry.size() {
        return Ok(false);
    }
    are_equal(&mut BufReader::new(File::open(path)?), entry)
}

fn is_same_file(path: &Path, other: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.len() == fs::metadata(other)?.len() => {
            are_equal(&mut BufReader::new(File::open(path)?), &mut BufReader::new(File::open(other)?))
        }
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn are_equal(first: &mut impl Read, second: &mut impl Read) -> io::Result<bool> {
    const PIECE: u64 = 64 << 10;
    let (mut a, mut b) = (Vec::new(), Vec::new());
    loop {
        a.clear();
        b.clear();
        first.by_ref().take(PIECE).read_to_end(&mut a)?;
        second.by_ref().take(PIECE).read_to_end(&mut b)?;
        match a == b {
            false => return Ok(false),
            true if a.is_empty() => return Ok(true),
            true => {}
        }
    }
}
