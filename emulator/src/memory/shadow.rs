//! Shadow memory: one byte for each byte of a device's memory, which says whether it was written since it was
//! allocated.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use super::pages;

/// Shadow value of a written byte. Fresh pages contain zeros, which mean unwritten.
const WRITTEN: u8 = 1;

#[derive(Debug)]
pub struct Shadow {
    /// The first address that has a shadow.
    base: u64,
    bytes: u64,
    map: u64,
}

impl Shadow {
    /// Makes a shadow of `bytes` from `base` on.
    pub fn new(base: u64, bytes: u64) -> io::Result<Shadow> {
        Ok(Shadow { base, bytes, map: pages::map(bytes)? })
    }

    /// Returns the shadow of a range; `None` for host memory, which has none.
    fn of(&self, address: u64, bytes: u64) -> Option<&[AtomicU8]> {
        let offset = address.checked_sub(self.base)?;
        if offset.checked_add(bytes)? > self.bytes {
            return None;
        }
        // SAFETY: the mapping has a byte for each that is watched, and all shared access to it is atomic.
        Some(unsafe { std::slice::from_raw_parts((self.map + offset) as *const AtomicU8, bytes as usize) })
    }

    pub fn write(&self, address: u64, bytes: u64) {
        for byte in self.of(address, bytes).unwrap_or_default() {
            byte.store(WRITTEN, Ordering::Relaxed);
        }
    }

    /// Copies the shadow of one range to another; the ranges may overlap.
    pub fn copy(&self, target: u64, source: u64, bytes: u64) {
        match (self.of(target, bytes), self.of(source, bytes)) {
            (Some(target), Some(source)) => {
                let known: Vec<u8> = source.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
                target.iter().zip(known).for_each(|(byte, known)| byte.store(known, Ordering::Relaxed));
            }
            _ => self.write(target, bytes),
        }
    }

    /// Returns the offset of the first byte of a range that was never written, if there is one.
    pub fn first_unwritten(&self, address: u64, bytes: u64) -> Option<u64> {
        let found = self.of(address, bytes)?.iter().position(|byte| byte.load(Ordering::Relaxed) != WRITTEN);
        found.map(|offset| offset as u64)
    }

    /// Marks a freed range as unwritten.
    pub fn clear(&self, address: u64, bytes: u64) {
        pages::release(self.map + (address - self.base), bytes);
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        pages::unmap(self.map, self.bytes);
    }
}
