//! Writes a blob, so that it is there for as long as if nobody had stored it before.
//!
//! What is there already is kept if it is whole, and counts as new from then on: whoever prunes must not take it before its job has run. So
//! its time is renewed first, and at the end it must still have its name: a pruner that saw it old may have taken it in between, but one
//! that comes later sees it young.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use gpufleet_schema::{BlobDigest, BlobHasher, MessageId};

use super::{
    file::{PART_PREFIX, PIECE_BYTES, is_whole, open, path},
    step::Progress,
};

/// What is brought to the disk at once. The slowest store worth waiting for shows progress in time.
const SYNC_BYTES: usize = 16 << 20;
const PROBE: &[u8] = b"gpufleet write check";

/// What stands under a blob's name.
enum Standing {
    Renewed,
    /// It is what it should be, and as old as its owner says.
    SomebodyElses,
    Unfit,
}

pub(super) fn write(folder: &Path, digest: BlobDigest, bytes: &[u8], progress: &Progress) -> io::Result<()> {
    write_renewing(folder, digest, bytes, progress, |file| file.set_modified(SystemTime::now()))
}

fn write_renewing(
    folder: &Path,
    digest: BlobDigest,
    bytes: &[u8],
    progress: &Progress,
    renew: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    match standing(folder, digest, bytes.len() as u64, progress, renew)? {
        Standing::Renewed => {}
        Standing::SomebodyElses => match write_anew(folder, digest, bytes, progress) {
            // In a folder where each may replace only what is his, the age of it is its owner's business. Its bytes are there.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            written => written?,
        },
        Standing::Unfit => write_anew(folder, digest, bytes, progress)?,
    }
    // The name is to be on the disk as well, whoever has written it.
    File::open(folder)?.sync_all()
}

/// Looks at what is there, and renews it.
fn standing(
    folder: &Path,
    digest: BlobDigest,
    length: u64,
    progress: &Progress,
    renew: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<Standing> {
    // What can't be opened is replaced. Should the folder be at fault, then writing says so.
    let Ok(Some((file, found))) = open(folder, digest) else { return Ok(Standing::Unfit) };
    if found != length {
        return Ok(Standing::Unfit);
    }
    let standing = match renew(&file) {
        Ok(()) => Standing::Renewed,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Standing::SomebodyElses,
        Err(error) => return Err(error),
    };
    if !is_whole(&file, length, digest, progress)? {
        return Ok(Standing::Unfit);
    }
    // Whoever has written it may still be about to do so.
    file.sync_all()?;
    Ok(if still_has_its_name(&file, folder, digest)? { standing } else { Standing::Unfit })
}

/// The name is opened and not just looked at: folders of other machines are asked only then.
fn still_has_its_name(file: &File, folder: &Path, digest: BlobDigest) -> io::Result<bool> {
    let Ok(Some((named, _))) = open(folder, digest) else { return Ok(false) };
    let (file, named) = (file.metadata()?, named.metadata()?);
    Ok((file.dev(), file.ino()) == (named.dev(), named.ino()))
}

fn write_anew(folder: &Path, digest: BlobDigest, bytes: &[u8], progress: &Progress) -> io::Result<()> {
    let part = part(folder);
    let written = write_part(&part, digest, bytes, progress).and_then(|()| fs::rename(&part, path(folder, digest)));
    if written.is_err() {
        // What can't be removed is pruned later.
        drop(fs::remove_file(&part));
    }
    written
}

/// The bytes may lie in memory that is shared with a process which is not trusted: what is written is what was hashed, lest a wrong blob
/// take the place of a right one.
fn write_part(part: &Path, digest: BlobDigest, bytes: &[u8], progress: &Progress) -> io::Result<()> {
    let mut file = create(part)?;
    let mut hasher = BlobHasher::new();
    let mut own = Vec::with_capacity(PIECE_BYTES);
    for synced in bytes.chunks(SYNC_BYTES) {
        for piece in synced.chunks(PIECE_BYTES) {
            own.clear();
            own.extend_from_slice(piece);
            hasher.update(&own);
            file.write_all(&own)?;
            progress.moved(own.len())?;
        }
        file.sync_data()?;
        // The disk may have taken long.
        progress.moved(1)?;
    }
    if hasher.finish() != digest {
        return Err(io::Error::other("the bytes changed while the store wrote them"));
    }
    file.sync_all()
}

/// Whether something can be written at all: a file that is on the disk, and removed again.
pub(super) fn probe(folder: &Path) -> io::Result<()> {
    let part = part(folder);
    let written = create(&part).and_then(|mut file| {
        file.write_all(PROBE)?;
        file.sync_all()
    });
    // A file that can't be removed is as much of a problem.
    written.and(fs::remove_file(&part))
}

fn create(part: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o644).open(part)
}

/// A unique name for a partial file.
pub(super) fn part(folder: &Path) -> PathBuf {
    folder.join(format!("{PART_PREFIX}{}", MessageId::new()))
}

#[cfg(test)]
mod tests;
