//! Kernels on arrays.

pub const SAXPY_FACTOR: f32 = 1.5;

pub fn saxpy(x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = SAXPY_FACTOR.mul_add(*x, *y);
    }
}

pub fn reduce(values: &[f32]) -> f32 {
    values.iter().sum()
}

/// Replaces each value by the sum of all values up to it (inclusive scan).
pub fn scan(values: &mut [u32]) {
    let mut sum = 0u32;
    for value in values {
        sum = sum.wrapping_add(*value);
        *value = sum;
    }
}

pub fn histogram(data: &[u8], bins: &mut [u32]) {
    for value in data {
        bins[usize::from(*value)] += 1;
    }
}
