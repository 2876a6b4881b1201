//! The clock that kernels read (`%clock`, `%globaltimer`), in nanoseconds: one nanosecond counts as one clock cycle.
//! All devices and launches of a process share it.
//!
//! A test can advance the clock while kernels run, which ends kernels that wait for a point in time.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd as _,
    path::Path,
    ptr,
    sync::{
        LazyLock, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// Nanoseconds by which the clock is ahead, in a file mapped into memory; set once, when the driver starts.
static AHEAD: OnceLock<&'static AtomicU64> = OnceLock::new();

/// Returns the nanoseconds since the first call, plus those that a test has added.
pub fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let ahead = AHEAD.get().map_or(0, |ahead| ahead.load(Ordering::Relaxed));
    ahead.wrapping_add(START.elapsed().as_nanos() as u64)
}

/// Keeps the clock ahead by the nanoseconds that the first eight bytes of a file contain; later changes of the file
/// count too.
pub fn follow(path: &Path) -> io::Result<()> {
    const BYTES: usize = size_of::<AtomicU64>();
    let file = File::open(path)?;
    if file.metadata()?.len() < BYTES as u64 {
        return Err(io::Error::other("it has fewer than eight bytes"));
    }
    // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), BYTES, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is aligned to a page, readable, and never removed. It is read-only, and the atomic is only
    // loaded.
    let ahead = unsafe { AtomicU64::from_ptr(mapped.cast()) };
    AHEAD.set(ahead).map_err(|_| io::Error::other("the clock follows a file already"))
}
