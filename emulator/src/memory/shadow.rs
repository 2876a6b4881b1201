//! Which bytes of a device's memory were written since they were allocated: one byte for each.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use super::map_reserved;

/// Values of the shadow. Fresh pages hold zeros.
const WRITTEN: u8 = 1;

#[derive(Debug)]
pub struct Shadow {
    /// The first address that is watched.
    base: u64,
    bytes: u64,
    map: u64,
}

impl Shadow {
    /// A shadow of `bytes` from `base` on.
    pub fn new(base: u64, bytes: u64) -> io::Result<Shadow> {
        Ok(Shadow { base, bytes, map: map_reserved(bytes)? })
    }

    /// The bytes of the shadow for a range, where it is watched: memory of the host is not.
    fn of(&self, address: u64, bytes: u64) -> Option<&[AtomicU8]> {
        let offset = address.checked_sub(self.base)?;
        if offset.checked_add(bytes)? > self.bytes {
            return None;
        }
        // SAFETY: the mapping has a byte for each that is watched, and all access to it while it is shared is atomic.
        Some(unsafe { std::slice::from_raw_parts((self.map + offset) as *const AtomicU8, bytes as usize) })
    }

    pub fn write(&self, address: u64, bytes: u64) {
        for byte in self.of(address, bytes).unwrap_or_default() {
            byte.store(WRITTEN, Ordering::Relaxed);
        }
    }

    /// What is known about one range becomes true of another; the ranges may overlap.
    pub fn copy(&self, target: u64, source: u64, bytes: u64) {
        match (self.of(target, bytes), self.of(source, bytes)) {
            (Some(target), Some(source)) => {
                let known: Vec<u8> = source.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
                target.iter().zip(known).for_each(|(byte, known)| byte.store(known, Ordering::Relaxed));
            }
            _ => self.write(target, bytes),
        }
    }

    /// How many bytes of a range come before the first that nobody has written, if there is one.
    pub fn first_unwritten(&self, address: u64, bytes: u64) -> Option<u64> {
        let found = self.of(address, bytes)?.iter().position(|byte| byte.load(Ordering::Relaxed) != WRITTEN);
        found.map(|offset| offset as u64)
    }

    /// Forgets a range that was freed.
    pub fn clear(&self, address: u64, bytes: u64) {
        super::release_pages(self.map + (address - self.base), bytes);
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` and nothing can use it any more.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(self.map as usize), self.bytes as usize) };
    }
}
