//! A memory file that two processes map.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
};

use memmap2::MmapRaw;

/// A mapped memory file. Its size is sealed, so that neither side can truncate it while the other uses it.
#[derive(Debug)]
pub struct Segment {
    file: File,
    map: MmapRaw,
}

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

impl Segment {
    /// Makes a segment of zeros.
    pub fn new(bytes: u64) -> io::Result<Self> {
        // SAFETY: the name is a C string, and the flags are known to the kernel.
        let descriptor =
            unsafe { libc::memfd_create(c"gpufleet-staging".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: memfd_create has just opened it, and nothing else owns it.
        let file = unsafe { File::from_raw_fd(descriptor) };
        file.set_len(bytes)?;
        // SAFETY: the descriptor is open; F_ADD_SEALS takes an integer.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Self::map(file)
    }

    /// Maps a segment from the other process, after checking its size and seals.
    pub fn open(descriptor: OwnedFd, bytes: u64) -> io::Result<Self> {
        let file = File::from(descriptor);
        // SAFETY: the descriptor is open; F_GET_SEALS takes no argument.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 {
            return Err(io::Error::last_os_error());
        }
        if seals & SEALS != SEALS || file.metadata()?.len() != bytes {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the memory file does not match its announcement"));
        }
        Self::map(file)
    }

    fn map(file: File) -> io::Result<Self> {
        let map = MmapRaw::map_raw(&file)?;
        Ok(Self { file, map })
    }

    /// The start of the mapping. A caller that dereferences it must ensure that the other process does not write there at the same time.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    pub fn len(&self) -> usize {
        self.map.len()
    }

    pub fn is_empty(&self) -> bool {
        self.map.len() == 0
    }

    /// A descriptor to pass to the other process.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.file.as_fd().try_clone_to_owned()
    }
}
