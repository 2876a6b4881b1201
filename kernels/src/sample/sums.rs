//! Samples for the kernels that count or add.

use super::{
    draft::{Draft, Sample},
    noise::Noise,
};
use crate::reference;

pub(super) fn reduce_sum() -> Vec<Sample> {
    // All values have the same sign. The tolerance is relative, and a sum with both signs can be arbitrarily close to
    // zero.
    let sample = |n: usize| {
        let values = Noise::new(n as u64).uniform(n, 0.0, 1.0);
        let sum = reference::reduce_sum(&values);
        Draft::new("reduce_sum").input("values", &[n], &values).expect("sum", &[1], &[sum]).finish()
    };
    [1, 1000, 100_003].map(sample).into()
}

pub(super) fn scan_inclusive() -> Vec<Sample> {
    // Words of all sizes, so that their sums wrap around.
    let sample = |n: usize| {
        let values = Noise::new(n as u64).words(n);
        let sums = reference::scan_inclusive(&values);
        Draft::new("scan_inclusive").input("values", &[n], &values).expect("sums", &[n], &sums).finish()
    };
    // One block, several blocks, and more block sums than the middle launch handles in one pass.
    [1, 1025, 5000, 1_100_000].map(sample).into()
}

pub(super) fn histogram() -> Vec<Sample> {
    let sample = |n: usize| {
        // The smaller of two random bytes, so that the bins differ. A mix-up of equal bins would not be noticed.
        let mut noise = Noise::new(n as u64);
        let data: Vec<u8> = noise.bytes(n).into_iter().zip(noise.bytes(n)).map(|(a, b)| a.min(b)).collect();
        let bins = reference::histogram(&data);
        Draft::new("histogram").input("data", &[n], &data).expect("bins", &[256], &bins).finish()
    };
    [1, 1000, 50_001].map(sample).into()
}
