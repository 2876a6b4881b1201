//! Pseudo-random inputs, equal on every machine.

use crate::reference::philox;

/// A stream of random numbers.
pub(super) struct Noise {
    seed: u64,
    next: u64,
}

impl Noise {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, next: 0 }
    }

    pub(super) fn words(&mut self, count: usize) -> Vec<u32> {
        let first = self.next;
        self.next += count.div_ceil(4) as u64;
        (first..self.next).flat_map(|index| philox::block(self.seed, index)).take(count).collect()
    }

    pub(super) fn bytes(&mut self, count: usize) -> Vec<u8> {
        self.words(count).into_iter().map(|word| (word >> 24) as u8).collect()
    }

    /// Returns floats from `low` up to `high`.
    pub(super) fn uniform(&mut self, count: usize, low: f32, high: f32) -> Vec<f32> {
        // The significand of a float has 24 bits.
        let unit = |word: u32| (word >> 8) as f32 / (1 << 24) as f32;
        self.words(count).into_iter().map(|word| unit(word).mul_add(high - low, low)).collect()
    }
}
