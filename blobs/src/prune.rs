//! Lists blobs, and deletes those that no task has used for a given time.
//!
//! A blob's age is the time between its modification and that of a new file in the same folder. The clock of this machine is not
//! involved, because it may differ from the file server's: with a clock an hour ahead, a pruner would delete blobs an hour too early.

use std::{
    collections::HashSet,
    fs::{self, DirEntry, Metadata},
    io,
    path::Path,
    time::{Duration, SystemTime},
};

use gpufleet_schema::BlobDigest;

use super::{
    entry::{BlobEntry, Pruned},
    file::{PART_PREFIX, open_file, path},
    part,
    step::Progress,
    write,
};

/// The age at which a partial file is abandoned: longer than any write of one blob takes.
pub(super) const PART_KEPT: Duration = Duration::from_secs(24 * 3600);

impl Pruned {
    pub(super) fn count(&mut self, removed: bool, bytes: u64) {
        let (blobs, total) = match removed {
            true => (&mut self.removed, &mut self.removed_bytes),
            false => (&mut self.left, &mut self.left_bytes),
        };
        *blobs += 1;
        *total += bytes;
    }
}

/// The blobs in the folder. Ignores files that are not blobs.
pub(super) fn list(folder: &Path, progress: &Progress) -> io::Result<Vec<BlobEntry>> {
    let mut blobs = Vec::new();
    for entry in fs::read_dir(folder)? {
        progress.moved(1)?;
        blobs.extend(entry_of(&entry?)?);
    }
    Ok(blobs)
}

fn entry_of(entry: &DirEntry) -> io::Result<Option<BlobEntry>> {
    let Some(digest) = BlobDigest::of_file_name(&entry.file_name().to_string_lossy()) else { return Ok(None) };
    // Another process may have removed it since it was listed.
    let Ok(metadata) = entry.metadata() else { return Ok(None) };
    let blob = metadata.modified().map(|stored_at| BlobEntry { digest, bytes: metadata.len(), stored_at })?;
    Ok(metadata.is_file().then_some(blob))
}

/// Removes a blob; false if there is none.
pub(super) fn remove(folder: &Path, digest: BlobDigest) -> io::Result<bool> {
    match fs::remove_file(path(folder, digest)) {
        Ok(()) => Ok(true),
        // If the folder itself is missing, that is an error, because the blob may still exist.
        Err(error) if error.kind() == io::ErrorKind::NotFound => folder.metadata().map(|_| false),
        Err(error) => Err(error),
    }
}

pub(super) fn prune(
    folder: &Path,
    unused_for: Duration,
    live: &HashSet<BlobDigest>,
    progress: &Progress,
) -> io::Result<Pruned> {
    prune_at(write::probe(folder)?, folder, unused_for, live, progress)
}

fn prune_at(
    now: SystemTime,
    folder: &Path,
    unused_for: Duration,
    live: &HashSet<BlobDigest>,
    progress: &Progress,
) -> io::Result<Pruned> {
    let mut pruned = Pruned::default();
    for entry in fs::read_dir(folder)? {
        progress.moved(1)?;
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !BlobDigest::may_be_file_name(&name) && !name.starts_with(PART_PREFIX) {
            continue;
        }
        // Another process may have renamed or removed it since it was listed.
        let Ok(metadata) = entry.metadata() else { continue };
        if !may_go(&metadata) {
            continue;
        }
        let is_live = BlobDigest::of_file_name(&name).is_some_and(|digest| live.contains(&digest));
        let removed = if BlobDigest::may_be_file_name(&name) {
            let limit = Limit { now, kept: unused_for };
            !is_live && limit.is_old(&metadata)? && removed_if_old(folder, &entry.path(), limit)?
        } else {
            Limit { now, kept: PART_KEPT }.is_old(&metadata)? && removed(&entry.path())?
        };
        pruned.count(removed, metadata.len());
    }
    Ok(pruned)
}

/// Whether the entry may be removed. A link is removed without its target. Anything else that is not a file never was a blob and stays.
fn may_go(metadata: &Metadata) -> bool {
    metadata.is_file() || metadata.is_symlink()
}

/// The age at which a file is removed.
#[derive(Clone, Copy)]
struct Limit {
    now: SystemTime,
    kept: Duration,
}

impl Limit {
    /// A modification time in the future counts as new.
    fn is_old(self, metadata: &Metadata) -> io::Result<bool> {
        Ok(self.now.duration_since(metadata.modified()?).is_ok_and(|age| age >= self.kept))
    }
}

/// Removes a blob unless a writer has renewed it since its age was read. The pruner first renames the blob. A writer that comes later
/// does not find it and writes it anew; a blob that was renewed or replaced before gets its name back. A reader in between finds the
/// blob missing and tries again.
fn removed_if_old(folder: &Path, path: &Path, limit: Limit) -> io::Result<bool> {
    let part = part::name(folder);
    match fs::rename(path, &part) {
        Ok(()) => {}
        Err(error) => return gone(&error).ok_or(error),
    }
    match seen_anew(&part) {
        Ok(metadata) if may_go(&metadata) && limit.is_old(&metadata)? => removed(&part),
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

/// Returns whether a file that could not be removed is gone; `None` if the error does not show it.
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
