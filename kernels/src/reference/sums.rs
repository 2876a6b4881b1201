//! References for the kernels that count or add.

/// Computes the sum of all elements.
pub fn reduce_sum(values: &[f32]) -> f32 {
    values.iter().map(|value| f64::from(*value)).sum::<f64>() as f32
}

/// Computes, for each element, the sum of it and all elements before it, modulo 2³².
pub fn scan_inclusive(values: &[u32]) -> Vec<u32> {
    let mut sum = 0_u32;
    values
        .iter()
        .map(|value| {
            sum = sum.wrapping_add(*value);
            sum
        })
        .collect()
}

/// Counts how often each byte value occurs.
pub fn histogram(data: &[u8]) -> [u32; 256] {
    let mut bins = [0_u32; 256];
    for value in data {
        bins[usize::from(*value)] = bins[usize::from(*value)].wrapping_add(1);
    }
    bins
}
