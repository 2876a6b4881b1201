//! Kernels on square matrices.

/// Multiplies matrices in one of two loop orders. `float` returns the value of an element.
pub fn multiply<T: Copy>(a: &[T], b: &[T], c: &mut [f32], n: usize, by_row: bool, float: impl Fn(T) -> f32) {
    if by_row { multiply_by_row(a, b, c, n, float) } else { multiply_by_element(a, b, c, n, float) }
}

/// Computes one sum per element, as a thread of the CUDA kernel does.
fn multiply_by_element<T: Copy>(a: &[T], b: &[T], c: &mut [f32], n: usize, float: impl Fn(T) -> f32) {
    for (a_row, c_row) in a.chunks_exact(n).zip(c.chunks_exact_mut(n)) {
        for (column, c) in c_row.iter_mut().enumerate() {
            let b_column = b[column..].iter().step_by(n);
            *c = a_row.iter().zip(b_column).fold(0.0, |sum, (a, b)| float(*a).mul_add(float(*b), sum));
        }
    }
}

/// Computes these sums with loops that read and write rows from left to right, which the compiler can vectorise.
fn multiply_by_row<T: Copy>(a: &[T], b: &[T], c: &mut [f32], n: usize, float: impl Fn(T) -> f32) {
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

/// Returns the value of a finite half: a float with its bits shifted into place, times a factor that corrects the
/// exponent.
pub fn float_of_half(half: u16) -> f32 {
    const SCALE: f32 = f32::from_bits((127 + 112) << 23);
    let half = u32::from(half);
    f32::from_bits((half & 0x8000) << 16 | (half & 0x7fff) << 13) * SCALE
}

/// Side of a tile in elements; a tile stays in the first-level cache while it is transposed.
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
