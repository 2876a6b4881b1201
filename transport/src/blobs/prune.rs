//! Deletes blobs that no task has used for a given time.

use std::{
    fs::{self, Metadata},
    io,
    path::Path,
    time::Duration,
};

use super::{
    file::{PART_PREFIX, PREFIX, open_file},
    step::Progress,
    write::part,
};

/// The number and size of the blobs that were removed and kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub removed: u64,
    pub removed_bytes: u64,
    pub left: u64,
    pub left_bytes: u64,
}

/// The age at which a partial file is abandoned: longer than any write of one blob takes.
const PART_KEPT: Duration = Duration::from_secs(24 * 3600);

pub(super) fn prune(folder: &Path, unused_for: Duration, progress: &Progress) -> io::Result<Pruned> {
    let mut pruned = Pruned::default();
    for entry in fs::read_dir(folder)? {
        progress.moved(1)?;
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with(PREFIX) && !name.starts_with(PART_PREFIX) {
            continue;
        }
        // Another process may have renamed or removed it since it was listed.
        let Ok(metadata) = entry.metadata() else { continue };
        if !may_go(&metadata) {
            continue;
        }
        let removed = if name.starts_with(PREFIX) {
            is_old(&metadata, unused_for)? && removed_if_old(folder, &entry.path(), unused_for)?
        } else {
            is_old(&metadata, PART_KEPT)? && removed(&entry.path())?
        };
        if removed {
            pruned.removed += 1;
            pruned.removed_bytes += metadata.len();
        } else {
            pruned.left += 1;
            pruned.left_bytes += metadata.len();
        }
    }
    Ok(pruned)
}

/// Whether the entry may be removed. A link is removed without its target. Anything else that is not a file never was a blob and stays.
fn may_go(metadata: &Metadata) -> bool {
    metadata.is_file() || metadata.is_symlink()
}

/// A modification time in the future counts as new.
fn is_old(metadata: &Metadata, kept: Duration) -> io::Result<bool> {
    Ok(metadata.modified()?.elapsed().is_ok_and(|age| age >= kept))
}

/// Removes a blob unless a writer has renewed it since its age was read. The pruner first renames the blob. A writer that comes later
/// does not find it and writes it anew; a blob that was renewed or replaced before gets its name back. A reader in between finds the
/// blob missing and tries again.
fn removed_if_old(folder: &Path, path: &Path, kept: Duration) -> io::Result<bool> {
    let part = part(folder);
    match fs::rename(path, &part) {
        Ok(()) => {}
        Err(error) => return gone(&error).ok_or(error),
    }
    match seen_anew(&part) {
        Ok(metadata) if may_go(&metadata) && is_old(&metadata, kept)? => removed(&part),
        Ok(_) => put_back(&part, path).map(|()| false),
        Err(error) => gone(&error).ok_or(error),
    }
}

/// Opens the file if possible, because a network file system may answer from its cache otherwise.
fn seen_anew(path: &Path) -> io::Result<Metadata> {
    open_file(path).and_then(|file| file.metadata()).or_else(|_| fs::symlink_metadata(path))
}

/// Restores the name, but never replaces a blob that was stored in the meantime.
fn put_back(part: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(part, path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        // Some file systems or users have no hard links. A rename may then replace a newer file, which has the same content.
        Err(_) => return fs::rename(part, path),
    }
    removed(part).map(drop)
}

fn removed(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Err(error) => gone(&error).ok_or(error),
        Ok(()) => Ok(true),
    }
}

/// Whether a file that could not be removed is gone, if the error tells.
fn gone(error: &io::Error) -> Option<bool> {
    match error.kind() {
        // In a sticky folder a user can remove only own files; the others stay.
        io::ErrorKind::PermissionDenied => Some(false),
        // Another process deleted it first.
        io::ErrorKind::NotFound => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
