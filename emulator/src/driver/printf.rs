//! What kernels print. It is kept until the host reads it, up to a bound; beyond that the oldest lines go, as they do
//! from a device's buffer.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The size of a device's buffer unless set otherwise.
const BYTES_MAX: usize = 1 << 20;

/// The printed text of one device.
#[derive(Debug, Default)]
pub struct Printf {
    bytes: Mutex<VecDeque<u8>>,
}

impl Printf {
    /// Adds text at the end.
    pub fn add(&self, text: &str) {
        let mut bytes = self.bytes();
        bytes.extend(text.as_bytes());
        let surplus = bytes.len().saturating_sub(BYTES_MAX);
        bytes.drain(..surplus);
    }

    /// Takes up to so many bytes from the front.
    pub fn take(&self, most: usize) -> Vec<u8> {
        let mut bytes = self.bytes();
        let count = most.min(bytes.len());
        bytes.drain(..count).collect()
    }

    fn bytes(&self) -> MutexGuard<'_, VecDeque<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, Printf};

    #[test]
    fn text_is_taken_in_parts_and_once() {
        let printf = Printf::default();
        printf.add("block 1\n");
        assert_eq!(printf.take(6), b"block ");
        assert_eq!(printf.take(100), b"1\n");
        assert!(printf.take(100).is_empty());
    }

    #[test]
    fn the_oldest_text_goes_when_the_buffer_is_full() {
        let printf = Printf::default();
        printf.add(&"a".repeat(BYTES_MAX));
        printf.add("end");
        let taken = printf.take(usize::MAX);
        assert_eq!(taken.len(), BYTES_MAX);
        assert!(taken.ends_with(b"aend"));
    }
}
