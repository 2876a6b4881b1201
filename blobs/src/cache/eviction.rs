//! Keeps the folder of a cache within its bound.

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io,
    path::Path,
    time::SystemTime,
};

use gpufleet_schema::BlobDigest;

use crate::{file::PART_PREFIX, prune::PART_KEPT};

/// Evicts under a lock, because otherwise two workers would each evict enough for both. If another worker has the lock, the surplus stays
/// until the next blob, because that worker may be suspended.
pub(super) fn evict(folder: &Path, bytes_max: u64) -> io::Result<()> {
    let locked = File::open(folder)?;
    match locked.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(()),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let evicted = evict_oldest(folder, bytes_max);
    // Unlocked explicitly, because a child that is being started may hold a copy of the descriptor.
    locked.unlock()?;
    evicted
}

fn evict_oldest(folder: &Path, bytes_max: u64) -> io::Result<()> {
    let (mut blobs, mut bytes) = (BTreeMap::new(), 0);
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // A file that was renamed in the meantime is counted under its new name, now or next time.
        let Ok(metadata) = entry.metadata() else { continue };
        let (name, used) = (entry.file_name(), metadata.modified()?);
        let prefix = name.to_string_lossy();
        if BlobDigest::may_be_file_name(&prefix) {
            bytes += metadata.len();
            blobs.insert((used, name.clone()), metadata.len());
        } else if prefix.starts_with(PART_PREFIX)
            && SystemTime::now().duration_since(used).is_ok_and(|age| age > PART_KEPT)
        {
            remove(&entry.path())?;
        }
    }
    for ((_, name), freed) in blobs {
        if bytes <= bytes_max {
            break;
        }
        remove(&folder.join(name))?;
        bytes -= freed;
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
