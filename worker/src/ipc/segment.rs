//! A memory file that two processes map.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
};

use memmap2::MmapRaw;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};

/// A mapped memory file. Its size is sealed, so that neither process can truncate it while the other uses it.
#[derive(Debug)]
pub struct Segment {
    file: File,
    map: MmapRaw,
}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

impl Segment {
    /// Creates a segment of zeros.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let file = File::from(memfd_create(c"gpufleet-staging", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        file.set_len(bytes)?;
        fcntl_add_seals(&file, SEALS)?;
        Self::map(file)
    }

    /// Maps a segment from the other process, after checking its size and seals.
    pub fn open(descriptor: OwnedFd, bytes: u64) -> io::Result<Self> {
        let file = File::from(descriptor);
        if !fcntl_get_seals(&file)?.contains(SEALS) || file.metadata()?.len() != bytes {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the memory file does not match its announcement"));
        }
        Self::map(file)
    }

    fn map(file: File) -> io::Result<Self> {
        let map = MmapRaw::map_raw(&file)?;
        Ok(Self { file, map })
    }

    /// Returns the start of the mapping. When the caller dereferences it, the other process must not write to the same place.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    pub fn len(&self) -> usize {
        self.map.len()
    }

    pub fn is_empty(&self) -> bool {
        self.map.len() == 0
    }

    /// Returns a descriptor to send to the other process.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.file.as_fd().try_clone_to_owned()
    }
}
