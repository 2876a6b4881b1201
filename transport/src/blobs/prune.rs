//! What nobody needs any more.

use std::{fs, io, path::Path, time::Duration};

use super::file::{PART_PREFIX, PREFIX};

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

pub(super) fn prune(folder: &Path, unused_for: Duration) -> io::Result<Pruned> {
    let mut pruned = Pruned::default();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let kept = match name.to_string_lossy() {
            name if name.starts_with(PREFIX) => unused_for,
            name if name.starts_with(PART_PREFIX) => PART_KEPT,
            _ => continue,
        };
        // It may have been renamed or removed since it was listed.
        let Ok(metadata) = entry.metadata() else { continue };
        // One from the future is new.
        let is_old = metadata.modified()?.elapsed().is_ok_and(|age| age >= kept);
        if is_old && removed(&entry.path())? {
            pruned.removed += 1;
            pruned.removed_bytes += metadata.len();
        } else {
            pruned.left += 1;
            pruned.left_bytes += metadata.len();
        }
    }
    Ok(pruned)
}

/// In a folder where each may remove only what is his, the rest stays.
fn removed(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        // Somebody else was quicker.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        done => done.map(|()| true),
    }
}
