//! Sums of products with vectors of four. A product is exact in f64, so a fused multiply-add rounds like a product and
//! a sum.

use std::arch::x86_64::{_mm256_broadcast_sd, _mm256_fmadd_pd, _mm256_loadu_pd, _mm256_setzero_pd, _mm256_storeu_pd};

use crate::ops::matrix::layout::Shape;

/// Sums in a vector.
const WIDTH: usize = 4;

/// Rows that are computed together, and vectors in each: these eight independent sums hide the latency of the addition.
/// Every shape has multiples of these.
const ROWS: usize = 4;
const VECTORS: usize = 2;

#[inline]
#[target_feature(enable = "avx2,fma")]
pub fn floats(shape: Shape, a: &[f64], b: &[f64], c: &mut [f64]) {
    let (n, k) = (shape.n as usize, shape.k as usize);
    for (rows, sums) in a.chunks_exact(ROWS * k).zip(c.chunks_exact_mut(ROWS * n)) {
        for column in (0..n).step_by(VECTORS * WIDTH) {
            block(shape, rows, &b[column..], &mut sums[column..]);
        }
    }
}

/// Computes the block of sums at the start of `c`.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn block(shape: Shape, a: &[f64], b: &[f64], c: &mut [f64]) {
    let (n, k) = (shape.n as usize, shape.k as usize);
    let within = |matrix: &[f64], rows: usize| (rows - 1) * n + VECTORS * WIDTH <= matrix.len();
    assert!(ROWS * k <= a.len() && within(b, k) && within(c, ROWS), "matrices have the sizes of their shape");
    let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
    let mut sums = [[_mm256_setzero_pd(); VECTORS]; ROWS];
    // SAFETY: all elements are inside the matrices, as was checked.
    unsafe {
        for (row, sums) in sums.iter_mut().enumerate() {
            for (part, sum) in sums.iter_mut().enumerate() {
                *sum = _mm256_loadu_pd(c.add(row * n + part * WIDTH));
            }
        }
        for step in 0..k {
            for (row, sums) in sums.iter_mut().enumerate() {
                let factor = _mm256_broadcast_sd(&*a.add(row * k + step));
                for (part, sum) in sums.iter_mut().enumerate() {
                    let others = _mm256_loadu_pd(b.add(step * n + part * WIDTH));
                    *sum = _mm256_fmadd_pd(factor, others, *sum);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for (part, sum) in sums.iter().enumerate() {
                _mm256_storeu_pd(c.add(row * n + part * WIDTH), *sum);
            }
        }
    }
}
