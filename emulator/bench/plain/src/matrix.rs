//! Kernels over square matrices.

/// A sum for each element, as a thread of the CUDA kernel does it.
pub fn multiply(a: &[f32], b: &[f32], c: &mut [f32], n: usize) {
    for (a_row, c_row) in a.chunks_exact(n).zip(c.chunks_exact_mut(n)) {
        for (column, c) in c_row.iter_mut().enumerate() {
            let b_column = b[column..].iter().step_by(n);
            *c = a_row.iter().zip(b_column).fold(0.0, |sum, (a, b)| a.mul_add(*b, sum));
        }
    }
}

/// The same sums, in the order of loops that reads and writes rows from left to right, which the compiler can vectorise.
pub fn multiply_by_row(a: &[f32], b: &[f32], c: &mut [f32], n: usize) {
    for (a_row, c_row) in a.chunks_exact(n).zip(c.chunks_exact_mut(n)) {
        c_row.fill(0.0);
        for (factor, b_row) in a_row.iter().zip(b.chunks_exact(n)) {
            for (sum, b) in c_row.iter_mut().zip(b_row) {
                *sum = factor.mul_add(*b, *sum);
            }
        }
    }
}

/// As [`multiply`], of halves.
pub fn multiply_halves(a: &[u16], b: &[u16], c: &mut [f32], n: usize) {
    for (a_row, c_row) in a.chunks_exact(n).zip(c.chunks_exact_mut(n)) {
        for (column, c) in c_row.iter_mut().enumerate() {
            let b_column = b[column..].iter().step_by(n);
            *c = a_row.iter().zip(b_column).fold(0.0, |sum, (a, b)| float(*a).mul_add(float(*b), sum));
        }
    }
}

/// As [`multiply_by_row`], of halves.
pub fn multiply_halves_by_row(a: &[u16], b: &[u16], c: &mut [f32], n: usize) {
    for (a_row, c_row) in a.chunks_exact(n).zip(c.chunks_exact_mut(n)) {
        c_row.fill(0.0);
        for (factor, b_row) in a_row.iter().zip(b.chunks_exact(n)) {
            let factor = float(*factor);
            for (sum, b) in c_row.iter_mut().zip(b_row) {
                *sum = factor.mul_add(float(*b), *sum);
            }
        }
    }
}

/// The value of a finite half: a float with the same bits, times what its exponent is too small by.
fn float(half: u16) -> f32 {
    const SCALE: f32 = f32::from_bits((127 + 112) << 23);
    let half = u32::from(half);
    f32::from_bits((half & 0x8000) << 16 | (half & 0x7fff) << 13) * SCALE
}

/// Elements on the side of a tile that stays in the first-level cache while it is turned.
const TILE: usize = 16;

pub fn transpose(from: &[f32], to: &mut [f32], n: usize) {
    for top in (0..n).step_by(TILE) {
        for left in (0..n).step_by(TILE) {
            for row in top..(top + TILE).min(n) {
                for column in left..(left + TILE).min(n) {
                    to[column * n + row] = from[row * n + column];
                }
            }
        }
    }
}
