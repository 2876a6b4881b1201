//! Pages of the host: maps and unmaps address space for device memory, and gives its pages back.

use std::io;
use std::ptr;

/// Maps address space for `bytes`, all zero. The host provides pages only when they are written.
pub fn map(bytes: u64) -> io::Result<u64> {
    let length = usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no existing memory.
    let mapped = unsafe {
        libc::mmap(
            ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(mapped as u64) }
}

/// Unmaps address space that was mapped for device memory.
pub fn unmap(start: u64, bytes: u64) {
    if bytes > 0 {
        // SAFETY: the callers pass whole pages of mappings of their own, which nothing uses any more.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(start as usize), bytes as usize) };
    }
}

/// Gives the whole pages of a freed range back to the host, and zeroes the rest, which shares pages with neighbours.
/// The caller makes sure that nothing uses the range.
pub fn release(start: u64, room: u64) {
    const PAGE: u64 = 4096;
    let end = start + room;
    let (first, last) = (start.next_multiple_of(PAGE).min(end), (end / PAGE * PAGE).max(start));
    // SAFETY: the range is inside a mapping of ours and has no owner; private anonymous pages read as zero after
    // MADV_DONTNEED.
    unsafe {
        if first < last {
            ptr::write_bytes(start as *mut u8, 0, (first - start) as usize);
            libc::madvise(first as *mut libc::c_void, (last - first) as usize, libc::MADV_DONTNEED);
            ptr::write_bytes(last as *mut u8, 0, (end - last) as usize);
        } else {
            ptr::write_bytes(start as *mut u8, 0, room as usize);
        }
    }
}
