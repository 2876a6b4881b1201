//! References for the kernels on vectors and matrices.

/// Computes `y ← a·x + y`. Each element is rounded once.
pub fn saxpy(a: f32, x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "x and y have the same length");
    for (x, y) in x.iter().zip(y) {
        *y = a.mul_add(*x, *y);
    }
}

/// Computes `a + b`.
pub fn vector_add(a: &[f32], b: &[f32]) -> Vec<f32> {
    assert_eq!(a.len(), b.len(), "a and b have the same length");
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// Computes the product of `a`, which has `m` rows of `k`, and `b`, which has `k` rows of `n`.
pub fn matmul_tiled(a: &[f32], b: &[f32], [m, k, n]: [usize; 3]) -> Vec<f32> {
    assert_eq!((a.len(), b.len()), (m * k, k * n), "the matrices have the sizes said");
    let element = |row: usize, column: usize| {
        let products = (0..k).map(|inner| f64::from(a[row * k + inner]) * f64::from(b[inner * n + column]));
        products.sum::<f64>() as f32
    };
    (0..m).flat_map(|row| (0..n).map(move |column| element(row, column))).collect()
}

/// Transposes a matrix of `rows` rows.
pub fn transpose(matrix: &[f32], [rows, columns]: [usize; 2]) -> Vec<f32> {
    assert_eq!(matrix.len(), rows * columns, "the matrix has the size said");
    (0..columns).flat_map(|column| (0..rows).map(move |row| matrix[row * columns + column])).collect()
}
