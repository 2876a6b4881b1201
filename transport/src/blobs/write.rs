//! Writes a blob, or renews an existing one so that its retention starts again.
//!
//! An existing complete blob is kept, and its age starts again: a pruner must not remove it before its job has run. So the writer first
//! renews its time and at the end checks that the name still refers to it. A pruner that saw the old time may have removed the blob in
//! between; a later pruner sees the new time.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use gpufleet_schema::{BlobDigest, BlobHasher, MessageId};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};

use super::{
    file::{PART_PREFIX, PIECE_BYTES, is_whole, open, path},
    source::{BlobSource, pieces},
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
    // Syncs the folder too, so that the name is on the disk whichever process has written it.
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

fn write_anew(folder: &Path, digest: BlobDigest, bytes: &mut impl BlobSource, progress: &Progress) -> io::Result<()> {
    let part = part(folder);
    let written = write_part(&part, digest, bytes, progress).and_then(|()| fs::rename(&part, path(folder, digest)));
    if written.is_err() {
        // A partial file that can't be removed now is pruned later.
        drop(fs::remove_file(&part));
    }
    written
}

/// Writes and hashes each piece from one copy if the bytes may be in memory shared with an untrusted process. Otherwise a wrong blob could
/// replace a correct one.
fn write_part(part: &Path, digest: BlobDigest, bytes: &mut impl BlobSource, progress: &Progress) -> io::Result<()> {
    let mut file = create(part)?;
    let may_change = bytes.may_change();
    let mut hasher = BlobHasher::new();
    let mut own = vec![0; PIECE_BYTES];
    for range in pieces(bytes.length(), PIECE_BYTES) {
        let piece = &mut own[..(range.end - range.start) as usize];
        bytes.read_at(piece, range.start)?;
        if may_change {
            hasher.update(piece);
        }
        file.write_all(piece)?;
        progress.moved(piece.len())?;
        if range.end.is_multiple_of(SYNC_BYTES) {
            file.sync_data()?;
            // Reports progress, because the sync may have taken long.
            progress.moved(1)?;
        }
    }
    if may_change && hasher.finish() != digest {
        return Err(io::Error::other(CHANGED));
    }
    file.sync_all()
}

/// Checks that a file can be written, synced and removed. Returns the present time of the file server.
pub(super) fn probe(folder: &Path) -> io::Result<SystemTime> {
    let part = part(folder);
    let written = create(&part).and_then(|mut file| {
        file.write_all(PROBE)?;
        file.sync_all()?;
        file.metadata()?.modified()
    });
    // A file that can't be removed is an error too.
    let removed = fs::remove_file(&part);
    written.and_then(|now| removed.map(|()| now))
}

pub(super) fn create(part: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o644).open(part)
}

/// A unique name for a partial file.
pub(super) fn part(folder: &Path) -> PathBuf {
    folder.join(format!("{PART_PREFIX}{}", MessageId::new()))
}

#[cfg(test)]
mod tests;
