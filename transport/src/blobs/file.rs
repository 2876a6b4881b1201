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
/// Hashing then finds in the processor's cache what was just copied.
const PIECE_BYTES: usize = 256 << 10;

/// What reading came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    Whole,
    Missing,
    OtherLength(u64),
    OtherContents,
}

pub(super) fn path(folder: &Path, digest: BlobDigest) -> PathBuf {
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

/// Writes a blob, unless it is there whole.
pub(super) fn write(folder: &Path, digest: BlobDigest, bytes: &[u8]) -> io::Result<()> {
    if is_there(folder, digest, bytes.len() as u64)? {
        return Ok(());
    }
    let part = folder.join(format!("{PART_PREFIX}{}", MessageId::new()));
    let written = write_part(&part, digest, bytes).and_then(|()| fs::rename(&part, path(folder, digest)));
    if let Err(error) = written {
        // What can't be removed is pruned later.
        drop(fs::remove_file(&part));
        return Err(error);
    }
    // The name is to be on the disk as well.
    File::open(folder)?.sync_all()
}

/// The bytes may lie in memory that is shared with a process which is not trusted: what is written is what was hashed, lest a wrong blob
/// take the place of a right one.
fn write_part(part: &Path, digest: BlobDigest, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(part)?;
    let mut hasher = BlobHasher::new();
    let mut own = Vec::with_capacity(PIECE_BYTES);
    for piece in bytes.chunks(PIECE_BYTES) {
        own.clear();
        own.extend_from_slice(piece);
        hasher.update(&own);
        file.write_all(&own)?;
    }
    if hasher.finish() != digest {
        return Err(io::Error::other("the bytes changed while they were stored"));
    }
    file.sync_all()
}

/// Whether somebody has stored it whole. It then counts as new, so that it is not pruned before its job has run.
fn is_there(folder: &Path, digest: BlobDigest, length: u64) -> io::Result<bool> {
    let Some((file, found)) = open(folder, digest)? else { return Ok(false) };
    if found != length || digest_of(&file)? != digest {
        return Ok(false);
    }
    match file.set_modified(SystemTime::now()) {
        // Somebody else's, in a folder where each may change only what is his: it stays as old as its owner says.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(true),
        renewed => renewed.map(|()| true),
    }
}

fn digest_of(mut file: &File) -> io::Result<BlobDigest> {
    let mut hasher = BlobHasher::new();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hasher.finish()),
            length => hasher.update(&piece[..length]),
        }
    }
}

/// A blob's file and its length, if it is there. Whoever may write to the folder may have put anything under its name: no link is
/// followed, and nothing is waited for.
fn open(folder: &Path, digest: BlobDigest) -> io::Result<Option<(File, u64)>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path(folder, digest)) {
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
