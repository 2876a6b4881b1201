//! Products of matrices that are stored row after row: `c` becomes `a * b + c`.
//!
//! The PTX ISA leaves the order and the rounding of floating-point sums open, except for f64. Here the products are
//! exact and each sum is made in f64, from `c` on along the row, and rounded to the accumulator's type once at the end.
//! A device rounds or cuts off more often, and sooner. For f64, every step is a fused multiply-add along the row in
//! the given mode. Integers are exact.

use super::layout::Shape;
use crate::ops::exact::{self, DOUBLE, Rounding};
use crate::ops::float::canonical64;

/// What single bits are combined by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOp {
    Xor,
    And,
}

/// `step` for each element of the sum with each pair of factors, those of a row of sums side by side.
#[inline(always)]
fn along<T: Copy, S: Copy>(shape: Shape, a: &[T], b: &[T], c: &mut [S], step: impl Fn(T, T, S) -> S) {
    let (n, k) = (shape.n as usize, shape.k as usize);
    for (row, sums) in a.chunks_exact(k).zip(c.chunks_exact_mut(n)) {
        for (factor, others) in row.iter().zip(b.chunks_exact(n)) {
            for (sum, other) in sums.iter_mut().zip(others) {
                *sum = step(*factor, *other, *sum);
            }
        }
    }
}

/// Sums of exact products.
pub fn floats(shape: Shape, a: &[f64], b: &[f64], c: &mut [f64]) {
    along(shape, a, b, c, |a, b, sum| sum + a * b);
}

/// Fused multiply-adds in a rounding mode.
pub fn doubles(shape: Shape, a: &[f64], b: &[f64], c: &mut [f64], rounding: Rounding) {
    match rounding {
        Rounding::Nearest => along(shape, a, b, c, |a, b, sum| canonical64(a.mul_add(b, sum))),
        _ => along(shape, a, b, c, |a, b, sum| canonical64(exact::fma(a, b, sum, rounding, DOUBLE))),
    }
}

pub fn integers(shape: Shape, a: &[i32], b: &[i32], c: &mut [i64]) {
    along(shape, a, b, c, |a, b, sum| sum + i64::from(a) * i64::from(b));
}

/// Counts the bits set in combined words; `k` counts words here.
pub fn bits(shape: Shape, op: BitOp, a: &[u32], b: &[u32], c: &mut [i64]) {
    match op {
        BitOp::Xor => along(shape, a, b, c, |a, b, sum| sum + i64::from((a ^ b).count_ones())),
        BitOp::And => along(shape, a, b, c, |a, b, sum| sum + i64::from((a & b).count_ones())),
    }
}
