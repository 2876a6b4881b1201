//! Reads and checks one blob's file.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use gpufleet_schema::{BlobDigest, BlobHasher, bounds::BLOBS_BYTES_MAX};
use rustix::fs::OFlags;

use super::{
    bytes::BlobBytes,
    source::{BlobSource, PIECE_BYTES, each_piece, pieces},
    step::Progress,
};

/// A partial file: readers ignore it.
pub(super) const PART_PREFIX: &str = ".part-";

/// The result of checking a blob.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    AsWanted,
    Missing,
    /// The content matches the digest, but it has this length instead of the expected one.
    OtherLength(u64),
    Damaged,
}

pub(super) fn path(folder: &Path, digest: BlobDigest) -> PathBuf {
    folder.join(digest.file_name())
}

/// The length of the blob in bytes, if it exists.
pub(super) fn length(folder: &Path, digest: BlobDigest) -> io::Result<Option<u64>> {
    Ok(open(folder, digest)?.map(|(_, length)| length))
}

/// Opens the blob if it has the expected length. If not, finds out whether the blob or the task is wrong.
pub(super) fn look(
    folder: &Path,
    digest: BlobDigest,
    wanted: u64,
    progress: &Progress,
) -> io::Result<Result<File, Found>> {
    let Some((file, length)) = open(folder, digest)? else { return Ok(Err(Found::Missing)) };
    if length == wanted {
        return Ok(Ok(file));
    }
    // Reading more than that would take too long.
    if length > BLOBS_BYTES_MAX {
        return Ok(Err(Found::OtherLength(length)));
    }
    progress.expect(length);
    let is_whole = is_whole(&file, length, digest, progress)?;
    Ok(Err(if is_whole { Found::OtherLength(length) } else { Found::Damaged }))
}

/// Copies a blob of this length. The outer error is of the store, the inner one of `into`.
pub(super) fn copy(
    folder: &Path,
    digest: BlobDigest,
    wanted: u64,
    into: &mut impl Write,
    progress: &Progress,
) -> io::Result<io::Result<Found>> {
    let mut file = match look(folder, digest, wanted, progress)? {
        Ok(file) => file,
        Err(found) => return Ok(Ok(found)),
    };
    let mut hasher = digest.hasher();
    let mut own = vec![0; PIECE_BYTES];
    for range in pieces(wanted, PIECE_BYTES) {
        let piece = &mut own[..(range.end - range.start) as usize];
        if !filled(&mut file, piece)? {
            return Ok(Ok(Found::Damaged));
        }
        hasher.update(piece);
        if let Err(error) = into.write_all(piece) {
            return Ok(Err(error));
        }
        progress.moved(piece.len())?;
    }
    Ok(into.flush().map(|()| if hasher.finish() == digest { Found::AsWanted } else { Found::Damaged }))
}

/// Maps a blob of this length, if its file can be mapped. The inner error says what was found instead of the blob.
pub(super) fn map(
    folder: &Path,
    digest: BlobDigest,
    wanted: u64,
    progress: &Progress,
) -> io::Result<Result<Option<BlobBytes>, Found>> {
    let file = match look(folder, digest, wanted, progress)? {
        Ok(file) => file,
        Err(found) => return Ok(Err(found)),
    };
    let Some(bytes) = BlobBytes::map(&file, wanted)? else { return Ok(Ok(None)) };
    let mut hasher = digest.hasher();
    for piece in bytes.chunks(PIECE_BYTES) {
        hasher.update(piece);
        progress.moved(piece.len())?;
    }
    Ok(if hasher.finish() == digest { Ok(Some(bytes)) } else { Err(Found::Damaged) })
}

/// Reads a whole piece; false if the file was truncated in the meantime.
fn filled(file: &mut File, piece: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(piece) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether an open file of this length matches the digest.
pub(super) fn is_whole(file: &File, length: u64, digest: BlobDigest, progress: &Progress) -> io::Result<bool> {
    // One more byte is enough to detect that the file has grown.
    let mut bytes = file.take(length + 1);
    let mut hasher = digest.hasher();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match bytes.read(&mut piece)? {
            0 => return Ok(hasher.finish() == digest),
            length => {
                hasher.update(&piece[..length]);
                progress.moved(length)?;
            }
        }
    }
}

pub(super) fn digest_of(source: &mut impl BlobSource, progress: &Progress) -> io::Result<BlobDigest> {
    let mut hasher = BlobHasher::new();
    each_piece(source, |piece| {
        hasher.update(piece);
        progress.moved(piece.len())
    })?;
    Ok(hasher.finish())
}

/// A blob's file and its length, if it exists.
pub(super) fn open(folder: &Path, digest: BlobDigest) -> io::Result<Option<(File, u64)>> {
    let file = match open_file(&path(folder, digest)) {
        Ok(file) => file,
        // If the folder itself is missing, that is an error, because the blob may still exist.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return folder.metadata().map(|_| None),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other(format!("{digest} is not a regular file")));
    }
    Ok(Some((file, metadata.len())))
}

/// Opens a file without following links or blocking, because other users of the folder may have put a link or a pipe under the name.
pub(super) fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()).open(path)
}
