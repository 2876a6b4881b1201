//! One blob's file.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use gpufleet_schema::{BlobDigest, BlobHasher, MessageId};

pub(super) const PREFIX: &str = "sha256-";
/// What is being written; nobody reads it.
pub(super) const PART_PREFIX: &str = ".part-";
/// So that hashing finds in the processor's cache what was just read.
const PIECE_BYTES: usize = 256 << 10;

/// What reading came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    Whole,
    Missing,
    OtherLength(u64),
    OtherContents,
}

fn path(folder: &Path, digest: BlobDigest) -> PathBuf {
    folder.join(format!("{PREFIX}{}", digest.hex()))
}

/// How many bytes it has, if it is there.
pub(super) fn length(folder: &Path, digest: BlobDigest) -> io::Result<Option<u64>> {
    Ok(open(folder, digest)?.map(|(_, length)| length))
}

pub(super) fn read(folder: &Path, digest: BlobDigest, into: &mut [u8]) -> io::Result<Read> {
    let Some((mut file, length)) = open(folder, digest)? else { return Ok(Read::Missing) };
    if length != into.len() as u64 {
        return Ok(Read::OtherLength(length));
    }
    let mut hasher = BlobHasher::new();
    for piece in into.chunks_mut(PIECE_BYTES) {
        match file.read_exact(piece) {
            Ok(()) => hasher.update(piece),
            // It was cut off meanwhile.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Read::OtherContents),
            Err(error) => return Err(error),
        }
    }
    Ok(if hasher.finish() == digest { Read::Whole } else { Read::OtherContents })
}

/// Writes a blob, unless it is there.
pub(super) fn write(folder: &Path, digest: BlobDigest, bytes: &[u8]) -> io::Result<()> {
    if is_there(folder, digest, bytes)? {
        return Ok(());
    }
    let part = folder.join(format!("{PART_PREFIX}{}", MessageId::new()));
    let written = write_part(&part, bytes).and_then(|()| fs::rename(&part, path(folder, digest)));
    if let Err(error) = written {
        // What can't be removed is pruned later.
        let _left = fs::remove_file(&part);
        return Err(error);
    }
    // The name is on the disk as well.
    File::open(folder)?.sync_all()
}

fn write_part(part: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(part)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Whether somebody has stored it whole. It then counts as new, so that it is not pruned before its job has run.
fn is_there(folder: &Path, digest: BlobDigest, bytes: &[u8]) -> io::Result<bool> {
    let Some((mut file, length)) = open(folder, digest)? else { return Ok(false) };
    if length != bytes.len() as u64 {
        return Ok(false);
    }
    let mut piece = vec![0; PIECE_BYTES];
    for wanted in bytes.chunks(PIECE_BYTES) {
        let found = &mut piece[..wanted.len()];
        match file.read_exact(found) {
            Ok(()) if found == wanted => {}
            Ok(()) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    match file.set_modified(SystemTime::now()) {
        // Somebody else's, in a folder where each may remove only what is his: it stays as old as its owner says.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(true),
        renewed => renewed.map(|()| true),
    }
}

/// A blob's file and its length, if it is there. Whoever may write to the folder may have put anything under its name: no link is
/// followed, and nothing is waited for.
fn open(folder: &Path, digest: BlobDigest) -> io::Result<Option<(File, u64)>> {
    let options = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(options).open(path(folder, digest)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other(format!("{digest} is no file there")));
    }
    Ok(Some((file, metadata.len())))
}
