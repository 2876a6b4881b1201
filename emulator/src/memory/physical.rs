//! Physical memory (`cuMemCreate`): memory without an address, as parts of an unnamed file, so that several addresses
//! can map one part.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Memory, OutOfMemory};

/// The source of a device's physical memory. The file is created when the first part is taken.
#[derive(Debug, Default)]
pub struct Store {
    file: Mutex<Option<Growing>>,
}

#[derive(Debug)]
struct Growing {
    file: Arc<File>,
    bytes: u64,
}

/// A part of a device's memory, which counts as used until this is dropped.
#[derive(Debug)]
pub struct Physical {
    memory: Arc<Memory>,
    file: Arc<File>,
    /// Offset of its first byte in the file.
    start: u64,
    pub bytes: u64,
}

/// The reason why physical memory could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    #[error("failed to make room for {bytes} bytes of physical memory: {source}")]
    Host {
        bytes: u64,
        #[source]
        source: io::Error,
    },
}

impl Store {
    /// Appends zeros to the file. Parts are never reused, because a file has more offsets than programs can take.
    fn grow(&self, bytes: u64) -> io::Result<(Arc<File>, u64)> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let growing = match &mut *file {
            Some(growing) => growing,
            empty => empty.insert(Growing { file: Arc::new(create()?), bytes: 0 }),
        };
        let start = growing.bytes;
        let end = start.checked_add(bytes).ok_or_else(|| io::Error::from(io::ErrorKind::StorageFull))?;
        growing.file.set_len(end)?;
        growing.bytes = end;
        Ok((Arc::clone(&growing.file), start))
    }
}

impl Physical {
    /// Takes `bytes`, whole pages, all zero. The host provides pages when they are first touched.
    pub fn take(memory: &Arc<Memory>, bytes: u64) -> Result<Physical, TakeError> {
        memory.count(bytes)?;
        match memory.store.grow(bytes) {
            Ok((file, start)) => Ok(Physical { memory: Arc::clone(memory), file, start, bytes }),
            Err(source) => {
                memory.uncount(bytes);
                Err(TakeError::Host { bytes, source })
            }
        }
    }

    /// Maps a part of this memory at an address, in place of the mapping there.
    ///
    /// # Safety
    /// The addresses are reserved, and nothing but checked accesses uses them.
    pub unsafe fn show_at(&self, address: u64, offset: u64, bytes: u64) -> io::Result<()> {
        let start = i64::try_from(self.start + offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let target = std::ptr::with_exposed_provenance_mut(address as usize);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: the caller vouches for the addresses, which the mapping replaces.
        let mapped = unsafe { libc::mmap(target, bytes as usize, protection, flags, self.file.as_raw_fd(), start) };
        if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the call touches only the file's own part, which no mapping shows any more. The start is below the
        // file's length, so it fits an `off_t`.
        unsafe { libc::fallocate(self.file.as_raw_fd(), mode, self.start as i64, self.bytes as i64) };
        self.memory.uncount(self.bytes);
    }
}

/// Creates an unnamed file in memory.
fn create() -> io::Result<File> {
    // SAFETY: the name ends with a NUL, and the call touches nothing else.
    let descriptor = unsafe { libc::memfd_create(c"gpufleet-emulator".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and has no other owner.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}
