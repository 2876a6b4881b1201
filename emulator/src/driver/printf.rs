//! Output of `printf` in kernels, in a bounded buffer that drops its oldest lines, as a device does.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Bytes of the buffer: a device's default. No line is longer.
const BYTES_MAX: usize = crate::simt::PRINT_BYTES_MAX;

/// Set if a kernel has printed since the output was last written.
pub(super) static PRINTED: AtomicBool = AtomicBool::new(false);

/// The output buffer of one device.
#[derive(Debug, Default)]
pub struct Printf {
    bytes: Mutex<VecDeque<u8>>,
}

impl Printf {
    /// Appends text.
    pub fn add(&self, text: &[u8]) {
        let mut bytes = self.bytes();
        PRINTED.store(true, Ordering::Relaxed);
        bytes.extend(text);
        let surplus = bytes.len().saturating_sub(BYTES_MAX);
        bytes.drain(..surplus);
    }

    /// Takes at most `most` bytes from the front.
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
        printf.add(b"block 1\n");
        assert_eq!(printf.take(6), b"block ");
        assert_eq!(printf.take(100), b"1\n");
        assert!(printf.take(100).is_empty());
    }

    #[test]
    fn the_oldest_text_goes_when_the_buffer_is_full() {
        let printf = Printf::default();
        printf.add(&b"a".repeat(BYTES_MAX));
        printf.add(b"end");
        let taken = printf.take(usize::MAX);
        assert_eq!(taken.len(), BYTES_MAX);
        assert!(taken.ends_with(b"aend"));
    }
}
