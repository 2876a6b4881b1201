//! Rounds the sizes of buffers in device memory. The supervisor and the executor account for memory by the same rule.

/// Size up to which a GPU's buffers are rounded to powers of two, in bytes; larger ones are rounded to multiples of it.
/// A GPU's page is 2 MiB.
const CLASS_BYTES: u64 = 2 << 20;
/// The driver's alignment of allocations, in bytes.
const SIZE_BYTES_MIN: u64 = 256;

/// How sizes are rounded on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sizes {
    /// Exact sizes for the emulator, so that it detects an access one element past the end.
    Exact,
    /// Few different sizes for a GPU, so that cached blocks fit later jobs.
    Classes,
}

impl Sizes {
    pub(crate) fn of(emulated: bool) -> Self {
        if emulated { Self::Exact } else { Self::Classes }
    }

    /// Returns the device memory that a buffer of this size takes, in bytes.
    pub(crate) fn taken(self, bytes: u64) -> u64 {
        let bytes = bytes.max(1);
        match self {
            Self::Exact => bytes,
            Self::Classes if bytes > CLASS_BYTES => bytes.checked_next_multiple_of(CLASS_BYTES).unwrap_or(u64::MAX),
            Self::Classes => bytes.next_power_of_two().max(SIZE_BYTES_MIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact_for_the_emulator_and_few_for_a_gpu() {
        let (exact, classes) = (Sizes::of(true), Sizes::of(false));
        for bytes in [1, 255, 257, 5 << 20] {
            assert_eq!(exact.taken(bytes), bytes);
            assert!(classes.taken(bytes) >= bytes);
        }
        assert_eq!(classes.taken(1), 256);
        assert_eq!(classes.taken(300), 512);
        assert_eq!(classes.taken((2 << 20) + 1), 4 << 20);
        assert_eq!(classes.taken(u64::MAX), u64::MAX);
    }
}
