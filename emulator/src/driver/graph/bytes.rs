//! How much memory graphs have allocated on a device.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::status::{Answer, Status};

/// Bytes of all graphs of a device: the current number, and the maximum since the last reset.
#[derive(Debug, Default)]
pub struct GraphBytes {
    current: AtomicU64,
    /// Of what is used, and of what is reserved, which is the same but for the marks.
    high: [AtomicU64; 2],
}

impl GraphBytes {
    /// The attribute by its number in the C headers: used now, used at most, reserved now, reserved at most.
    pub fn attribute(&self, number: u32) -> Answer<u64> {
        match number {
            0 | 2 => Ok(self.current.load(Ordering::Relaxed)),
            1 | 3 => Ok(self.high[number as usize / 2].load(Ordering::Relaxed)),
            _ => Err(Status::InvalidValue),
        }
    }

    /// Starts a mark anew, which takes only 0.
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
