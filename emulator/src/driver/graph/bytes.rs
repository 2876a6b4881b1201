//! Accounts of the memory that graphs have allocated on a device (`cuDeviceGetGraphMemAttribute`).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::status::{Answer, Status};

/// Bytes allocated by all graphs of a device: the current number, and the maximum since the last reset.
#[derive(Debug, Default)]
pub struct GraphBytes {
    current: AtomicU64,
    /// Maxima of the used and of the reserved bytes. Used and reserved bytes are equal, but each maximum can be reset
    /// separately.
    high: [AtomicU64; 2],
}

impl GraphBytes {
    /// Returns an attribute by its number in the C headers: used, maximum used, reserved, maximum reserved.
    pub fn attribute(&self, number: u32) -> Answer<u64> {
        match number {
            0 | 2 => Ok(self.current.load(Ordering::Relaxed)),
            1 | 3 => Ok(self.high[number as usize / 2].load(Ordering::Relaxed)),
            _ => Err(Status::InvalidValue),
        }
    }

    /// Resets a maximum; the value has to be 0.
    pub fn reset(&self, number: u32, value: u64) -> Answer {
        if !matches!(number, 1 | 3) || value != 0 {
            return Err(Status::InvalidValue);
        }
        self.high[number as usize / 2].store(self.current.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(())
    }

    pub(in crate::driver) fn add(&self, bytes: u64) {
        let current = self.current.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.high.iter().for_each(|high| {
            high.fetch_max(current, Ordering::Relaxed);
        });
    }

    pub(super) fn subtract(&self, bytes: u64) {
        self.current.fetch_sub(bytes, Ordering::Relaxed);
    }
}
