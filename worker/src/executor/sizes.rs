//! How device memory is cut up: what a buffer takes is decided here, for the books of the supervisor and of the executor alike.

/// Below this, sizes are rounded to powers of two; above, to multiples of it. A GPU's page is 2 MiB.
const CLASS_BYTES: u64 = 2 << 20;
/// What the driver aligns every allocation to.
const SIZE_BYTES_MIN: u64 = 256;

/// How sizes are rounded, so that kept memory fits the next job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sizes {
    /// On the emulator, so that it sees an access one element beyond the end.
    Exact,
    /// On a GPU: few different ones.
    Classes,
}

impl Sizes {
    pub(crate) fn of(emulated: bool) -> Self {
        if emulated { Self::Exact } else { Self::Classes }
    }

    /// What a buffer of so many bytes takes.
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
