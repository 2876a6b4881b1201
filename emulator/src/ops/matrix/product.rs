//! Products of row-major matrices: `c` becomes `a * b + c`.
//!
//! The PTX ISA leaves the order and the rounding of floating-point sums open, except for f64. Here products are exact.
//! Each sum starts with `c`, is computed in f64 along the row, and is rounded to the accumulator's type once at the
//! end; a device rounds or truncates more often and earlier. For f64, every step along the row is a fused multiply-add
//! in the given mode. Integers are exact.

#[cfg(target_arch = "x86_64")]
mod vector;

use super::layout::Shape;
use crate::ops::exact::{self, DOUBLE, Rounding};

/// Operation that combines single bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOp {
    Xor,
    And,
}

/// Sums that are computed side by side; the rows of every shape have a multiple of these.
const ABREAST: usize = 8;

/// Calls `step` for each sum with each pair of its factors.
#[inline(always)]
fn along<T: Copy, S: Copy>(shape: Shape, a: &[T], b: &[T], c: &mut [S], step: impl Fn(T, T, S) -> S) {
    let (n, k) = (shape.n as usize, shape.k as usize);
    for (row, sums) in a.chunks_exact(k).zip(c.chunks_exact_mut(n)) {
        for (number, sums) in sums.as_chunks_mut::<ABREAST>().0.iter_mut().enumerate() {
            // A local copy, which the compiler keeps in vector registers for the whole row.
            let mut kept = *sums;
            for (factor, others) in row.iter().zip(b.chunks_exact(n)) {
                let others = &others.as_chunks::<ABREAST>().0[number];
                for (sum, other) in kept.iter_mut().zip(others) {
                    *sum = step(*factor, *other, *sum);
                }
            }
            *sums = kept;
        }
    }
}

/// Adds exact products.
///
/// # Safety
/// With `VECTOR`, the machine has what the vector build needs.
#[inline(always)]
pub unsafe fn floats<const VECTOR: bool>(shape: Shape, a: &[f64], b: &[f64], c: &mut [f64]) {
    #[cfg(target_arch = "x86_64")]
    if VECTOR {
        // SAFETY: the caller vouches for the machine.
        return unsafe { vector::floats(shape, a, b, c) };
    }
    along(shape, a, b, c, |a, b, sum| sum + a * b);
}

/// Adds products by fused multiply-adds in a rounding mode.
#[inline(always)]
pub fn doubles(shape: Shape, a: &[f64], b: &[f64], c: &mut [f64], rounding: Rounding) {
    match rounding {
        Rounding::Nearest => along(shape, a, b, c, |a, b, sum| a.mul_add(b, sum)),
        _ => along(shape, a, b, c, |a, b, sum| exact::fma(a, b, sum, rounding, DOUBLE)),
    }
}

/// Adds integer products. Factors have at most eight bits, so no sum of a row overflows an i32.
#[inline(always)]
pub fn integers(shape: Shape, a: &[i32], b: &[i32], c: &mut [i32]) {
    along(shape, a, b, c, |a, b, sum| sum + a * b);
}

/// Counts the set bits of combined words; `k` counts words here.
#[inline(always)]
pub fn bits(shape: Shape, op: BitOp, a: &[u32], b: &[u32], c: &mut [i32]) {
    match op {
        BitOp::Xor => along(shape, a, b, c, |a, b, sum| sum + (a ^ b).count_ones() as i32),
        BitOp::And => along(shape, a, b, c, |a, b, sum| sum + (a & b).count_ones() as i32),
    }
}
