//! The bytes of a blob, which may stay in its file.

use std::{
    fs::File,
    io,
    ops::{Deref, DerefMut},
    os::unix::fs::MetadataExt as _,
};

use memmap2::{MmapMut, MmapOptions};
use rustix::{
    fs::{FsWord, fstatfs},
    process::geteuid,
};

const EXT4: FsWord = 0xEF53;
const XFS: FsWord = 0x5846_5342;
const BTRFS: FsWord = 0x9123_683E;
const TMPFS: FsWord = 0x0102_1994;
const OVERLAY: FsWord = 0x794C_7630;
const ZFS: FsWord = 0x2FC1_2FC1;
/// File systems of this machine. Pages of a file on another machine can vanish, and reading them would then end the process.
const LOCAL: [FsWord; 6] = [EXT4, XFS, BTRFS, TMPFS, OVERLAY, ZFS];
/// Minimum size of a blob that is mapped. Smaller blobs are read, because their pages would cost more than their bytes.
const MAPPED_BYTES_MIN: u64 = 1 << 20;

/// The bytes of an array: in memory, or pages of a blob's file, which take memory only once they are written to. Writing
/// never changes the file.
#[derive(Debug)]
pub enum BlobBytes {
    Owned(Vec<u8>),
    Mapped(MmapMut),
}

impl BlobBytes {
    /// Maps a file of this length, if it is large and on this machine, and if only this user can change it.
    pub(super) fn map(file: &File, length: u64) -> io::Result<Option<Self>> {
        if length < MAPPED_BYTES_MIN || !is_private(file)? {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(io::Error::other)?;
        // SAFETY: no process truncates the file: only this user may write to it, and the writers of a store never change a blob.
        let mapped = unsafe { MmapOptions::new().len(length).map_copy(file) }?;
        Ok(Some(Self::Mapped(mapped)))
    }

    /// The bytes in memory. Mapped ones are copied.
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Mapped(mapped) => mapped.to_vec(),
        }
    }
}

fn is_private(file: &File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    let by_this_user = metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0;
    Ok(by_this_user && LOCAL.contains(&fstatfs(file)?.f_type))
}

impl Deref for BlobBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Mapped(mapped) => mapped,
        }
    }
}

impl DerefMut for BlobBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Mapped(mapped) => mapped,
        }
    }
}

impl AsRef<[u8]> for BlobBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for BlobBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Owned(bytes)
    }
}

/// The copy is in memory.
impl Clone for BlobBytes {
    fn clone(&self) -> Self {
        Self::Owned(self.to_vec())
    }
}

impl PartialEq for BlobBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for BlobBytes {}
