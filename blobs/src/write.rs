//! Writes a blob, or renews an existing one so that its retention starts again.
//!
//! An existing complete blob is kept, and its age starts again: a pruner must not remove it before its job has run. So the writer first
//! renews its time and at the end checks that the name still refers to it. A pruner that saw the old time may have removed the blob in
//! between; a later pruner sees the new time.

use std::{
    fs::File,
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::SystemTime,
};

use gpufleet_schema::{BlobDigest, BlobHasher};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};
use tempfile::NamedTempFile;

use super::{
    file::{is_whole, open, path},
    part,
    source::{BlobSource, each_piece},
    step::Progress,
};

/// The bytes of one sync, so that even the slowest usable store shows progress in time.
const SYNC_BYTES: u64 = 16 << 20;
pub(super) const CHANGED: &str = "the bytes changed while the store wrote them";
const PROBE: &[u8] = b"gpufleet write check";

/// The state of the file under a blob's name.
enum Standing {
    Renewed,
    /// The blob is complete, but belongs to another user, so its time can't be renewed.
    OtherOwner,
    Unfit,
}

pub(super) fn write(
    folder: &Path,
    digest: BlobDigest,
    bytes: &mut impl BlobSource,
    progress: &Progress,
) -> io::Result<()> {
    write_renewing(folder, digest, bytes, progress, renew)
}

/// Writes a blob whose name is known only when its bytes have been read, so that they are read once. An existing blob is replaced.
pub(super) fn write_unnamed(folder: &Path, bytes: &mut impl BlobSource, progress: &Progress) -> io::Result<BlobDigest> {
    let mut hasher = BlobHasher::new();
    let part = write_part(folder, bytes, Some(&mut hasher), progress)?;
    let digest = hasher.finish();
    match part::publish(part, &path(folder, digest)) {
        // In a sticky folder only the owner can replace the blob.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            match standing(folder, digest, bytes.length(), progress, renew)? {
                Standing::Renewed | Standing::OtherOwner => {}
                Standing::Unfit => return Err(error),
            }
        }
        published => published?,
    }
    File::open(folder)?.sync_all()?;
    Ok(digest)
}

/// Sets the modification time to the present time of the file server, which a pruner compares with. The clock of this machine may
/// differ from the server's.
pub(super) fn renew(file: &File) -> io::Result<()> {
    let time = |nanoseconds| Timespec { tv_sec: 0, tv_nsec: nanoseconds };
    Ok(futimens(file, &Timestamps { last_access: time(UTIME_OMIT), last_modification: time(UTIME_NOW) })?)
}

fn write_renewing(
    folder: &Path,
    digest: BlobDigest,
    bytes: &mut impl BlobSource,
    progress: &Progress,
    renew: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    match standing(folder, digest, bytes.length(), progress, renew)? {
        Standing::Renewed => {}
        Standing::OtherOwner => match write_anew(folder, digest, bytes, progress) {
            // In a sticky folder only the owner can replace the blob. Its content is correct, so it is used with its old time.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            written => written?,
        },
        Standing::Unfit => write_anew(folder, digest, bytes, progress)?,
    }
    // Syncs the folder too, so that the name is on the disk no matter which process has written it.
    File::open(folder)?.sync_all()
}

/// Checks an existing file and renews its time.
fn standing(
    folder: &Path,
    digest: BlobDigest,
    length: u64,
    progress: &Progress,
    renew: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<Standing> {
    // A file that can't be opened is replaced. If the folder is the problem, writing reports it.
    let Ok(Some((file, found))) = open(folder, digest) else { return Ok(Standing::Unfit) };
    if found != length {
        return Ok(Standing::Unfit);
    }
    let standing = match renew(&file) {
        Ok(()) => Standing::Renewed,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Standing::OtherOwner,
        Err(error) => return Err(error),
    };
    if !is_whole(&file, length, digest, progress)? {
        return Ok(Standing::Unfit);
    }
    // The process that wrote the file may not have synced it yet.
    file.sync_all()?;
    Ok(if still_has_its_name(&file, folder, digest)? { standing } else { Standing::Unfit })
}

/// Opens the name instead of reading its metadata, because a network file system may answer from its cache otherwise.
fn still_has_its_name(file: &File, folder: &Path, digest: BlobDigest) -> io::Result<bool> {
    let Ok(Some((named, _))) = open(folder, digest) else { return Ok(false) };
    let (file, named) = (file.metadata()?, named.metadata()?);
    Ok((file.dev(), file.ino()) == (named.dev(), named.ino()))
}

/// Hashes what it writes if the bytes may be in memory shared with an untrusted process. Otherwise a wrong blob could replace a correct
/// one.
fn write_anew(folder: &Path, digest: BlobDigest, bytes: &mut impl BlobSource, progress: &Progress) -> io::Result<()> {
    let mut hasher = bytes.owned().is_none().then(|| digest.hasher());
    let part = write_part(folder, bytes, hasher.as_mut(), progress)?;
    if hasher.is_some_and(|hasher| hasher.finish() != digest) {
        return Err(io::Error::other(CHANGED));
    }
    part::publish(part, &path(folder, digest))
}

/// A complete and synced file. Each piece is written and hashed from the same memory, so that the hash is that of what was written.
fn write_part(
    folder: &Path,
    bytes: &mut impl BlobSource,
    mut hasher: Option<&mut BlobHasher>,
    progress: &Progress,
) -> io::Result<NamedTempFile> {
    let part = part::create(folder)?;
    let mut file = part.as_file();
    let mut written = 0;
    each_piece(bytes, |piece| {
        if let Some(hasher) = &mut hasher {
            hasher.update(piece);
        }
        file.write_all(piece)?;
        progress.moved(piece.len())?;
        written += piece.len() as u64;
        if written.is_multiple_of(SYNC_BYTES) {
            file.sync_data()?;
            // Reports progress, because the sync may have taken long.
            progress.moved(1)?;
        }
        Ok(())
    })?;
    file.sync_all()?;
    Ok(part)
}

/// Checks that a file can be written, synced and removed. Returns the present time of the file server.
pub(super) fn probe(folder: &Path) -> io::Result<SystemTime> {
    let part = part::create(folder)?;
    let mut file = part.as_file();
    file.write_all(PROBE)?;
    file.sync_all()?;
    let now = file.metadata()?.modified()?;
    // A file that can't be removed is an error too.
    part.close().map(|()| now)
}

#[cfg(test)]
mod tests;
