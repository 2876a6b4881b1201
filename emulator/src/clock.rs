//! The clock that kernels read, in nanoseconds, which stand in for clock cycles. All devices and launches of a process have the same one.
//!
//! A test can put it forward while kernels run, and so ends those that wait for a time.

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

/// Set by the driver's start: by how much the clock is ahead.
static AHEAD: OnceLock<&'static AtomicU64> = OnceLock::new();

/// Nanoseconds since the first call, and what a test has added.
pub fn now() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let ahead = AHEAD.get().map_or(0, |ahead| ahead.load(Ordering::Relaxed));
    ahead.wrapping_add(START.elapsed().as_nanos() as u64)
}

/// Has the clock be ahead by the number that the first eight bytes of a file hold, now and whenever they change.
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
    // SAFETY: the mapping is aligned to a page, readable, and never removed. It can't be written, and only loads of the atomic are made.
    let ahead = unsafe { AtomicU64::from_ptr(mapped.cast()) };
    AHEAD.set(ahead).map_err(|_| io::Error::other("the clock follows a file already"))
}
