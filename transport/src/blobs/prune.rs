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

/// What was removed, and what is left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub removed: u64,
    pub removed_bytes: u64,
    pub left: u64,
    pub left_bytes: u64,
}

/// Longer than anybody writes at one blob.
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
        // It may have been renamed or removed since it was listed.
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

/// Somebody may have put anything under such a name. A link goes alone; what is no file was never a blob, and is not ours to remove.
fn may_go(metadata: &Metadata) -> bool {
    metadata.is_file() || metadata.is_symlink()
}

/// One from the future is new.
fn is_old(metadata: &Metadata, kept: Duration) -> io::Result<bool> {
    Ok(metadata.modified()?.elapsed().is_ok_and(|age| age >= kept))
}

/// Removes a blob, unless somebody has stored it since it was seen to be old. It loses its name first: whoever stores it from then on
/// misses it and writes it anew, and what was renewed or replaced until then gets its name back. In between, a reader finds it missing;
/// that is tried again by whoever wants it.
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

/// It is opened where that is possible: folders of other machines are asked only then.
fn seen_anew(path: &Path) -> io::Result<Metadata> {
    open_file(path).and_then(|file| file.metadata()).or_else(|_| fs::symlink_metadata(path))
}

/// Never in place of what was stored meanwhile.
fn put_back(part: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(part, path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        // Not every folder has links, and not everybody may make them. What takes the place of another then has the same contents.
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

/// Whether something is gone that could not be taken away, if that can be told.
fn gone(error: &io::Error) -> Option<bool> {
    match error.kind() {
        // In a folder where each may remove only what is his, the rest stays.
        io::ErrorKind::PermissionDenied => Some(false),
        // Another process deleted it first.
        io::ErrorKind::NotFound => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
