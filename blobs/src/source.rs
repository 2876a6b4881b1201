//! The bytes that a store reads in pieces: from memory, from a file, or from another source of the caller.

use std::{fs::File, io, ops::Range, os::unix::fs::FileExt as _};

use bytes::Bytes;

use super::step::Progress;

/// Bytes of a known length. A store reads them in order, and large ones more than once: to name them, and to store them.
pub trait BlobSource: Send + 'static {
    fn length(&self) -> u64;

    /// Copies the bytes at `offset`. The caller may be in a runtime, but this may block.
    fn read_at(&mut self, into: &mut [u8], offset: u64) -> io::Result<()>;

    /// The bytes, if they are in memory of this process and never change. A store then needs no copy of them.
    fn owned(&self) -> Option<&Bytes> {
        None
    }

    /// Whether the bytes are far away, so that a store should read them only once if it can.
    fn is_remote(&self) -> bool {
        false
    }
}

/// A small blob is read once, into memory of this process. So it is hashed once, because there it can't change.
pub(super) const READ_ONCE_BYTES_MAX: u64 = 4 << 20;

/// The size of the pieces in which bytes are read and hashed: so small that the processor's cache keeps one.
pub(super) const PIECE_BYTES: usize = 256 << 10;

/// Bytes in memory of this process alone, which do not change.
pub(super) struct Owned(pub(super) Bytes);

impl Owned {
    /// Reads a small source into memory, unless it is there.
    pub(super) fn read(source: &mut impl BlobSource, progress: &Progress) -> io::Result<Self> {
        if let Some(bytes) = source.owned() {
            return Ok(Self(bytes.clone()));
        }
        let mut bytes = vec![0; usize::try_from(source.length()).map_err(io::Error::other)?];
        source.read_at(&mut bytes, 0)?;
        progress.moved(bytes.len())?;
        Ok(Self(bytes.into()))
    }
}

impl BlobSource for Owned {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&mut self, into: &mut [u8], offset: u64) -> io::Result<()> {
        copy(&self.0, into, offset)
    }

    fn owned(&self) -> Option<&Bytes> {
        Some(&self.0)
    }
}

/// Bytes in memory that an untrusted process may change.
pub(super) struct Shared<B>(pub(super) B);

/// A part of a file.
pub(super) struct InFile {
    pub(super) file: File,
    pub(super) range: Range<u64>,
}

impl<B: AsRef<[u8]> + Send + 'static> BlobSource for Shared<B> {
    fn length(&self) -> u64 {
        self.0.as_ref().len() as u64
    }

    fn read_at(&mut self, into: &mut [u8], offset: u64) -> io::Result<()> {
        copy(self.0.as_ref(), into, offset)
    }
}

impl BlobSource for InFile {
    fn length(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    fn read_at(&mut self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let read = self.file.read_exact_at(into, self.range.start + offset);
        read.map_err(|error| io::Error::new(error.kind(), format!("read the file to store: {error}")))
    }
}

fn copy(from: &[u8], into: &mut [u8], offset: u64) -> io::Result<()> {
    let start = usize::try_from(offset).map_err(io::Error::other)?;
    let bytes = from.get(start..start + into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
    into.copy_from_slice(bytes);
    Ok(())
}

/// Passes on the bytes of a source in pieces. Those that it does not own are copied, so that they can't change meanwhile.
pub(super) fn each_piece(
    source: &mut impl BlobSource,
    mut work: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    if let Some(bytes) = source.owned() {
        return bytes.chunks(PIECE_BYTES).try_for_each(work);
    }
    let mut own = vec![0; PIECE_BYTES];
    for range in pieces(source.length(), PIECE_BYTES) {
        let piece = &mut own[..(range.end - range.start) as usize];
        source.read_at(piece, range.start)?;
        work(piece)?;
    }
    Ok(())
}

/// Divides a length into pieces of at most this length.
pub(super) fn pieces(length: u64, piece: usize) -> impl Iterator<Item = Range<u64>> {
    let piece = piece as u64;
    (0..length.div_ceil(piece)).map(move |number| number * piece..(number * piece + piece).min(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_length_and_only_the_last_is_shorter() {
        assert_eq!(pieces(0, 4).count(), 0);
        assert!(pieces(4, 4).eq(std::iter::once(0..4)));
        assert_eq!(pieces(9, 4).collect::<Vec<_>>(), [0..4, 4..8, 8..9]);
    }
}
