//! Samples for the kernels on vectors and matrices.

use super::{
    draft::{Draft, Sample},
    noise::Noise,
};
use crate::reference;

pub(super) fn saxpy() -> Vec<Sample> {
    let sample = |(n, a): (usize, f32)| {
        let mut noise = Noise::new(n as u64);
        let (x, y) = (noise.uniform(n, -10.0, 10.0), noise.uniform(n, -10.0, 10.0));
        let mut result = y.clone();
        reference::saxpy(a, &x, &mut result);
        let draft = Draft::new("saxpy").argument("a", a).input("x", &[n], &x).input("y", &[n], &y);
        draft.expect("y", &[n], &result).finish()
    };
    [(1, 3.0), (1000, -0.5), (4096, 2.0)].map(sample).into()
}

pub(super) fn vector_add() -> Vec<Sample> {
    let sample = |n: usize| {
        let mut noise = Noise::new(n as u64);
        let (a, b) = (noise.uniform(n, -1.0, 1.0), noise.uniform(n, -100.0, 100.0));
        let sum = reference::vector_add(&a, &b);
        Draft::new("vector_add").input("a", &[n], &a).input("b", &[n], &b).expect("sum", &[n], &sum).finish()
    };
    [1, 777, 2048].map(sample).into()
}

pub(super) fn matmul_tiled() -> Vec<Sample> {
    let sample = |[m, k, n]: [usize; 3]| {
        let mut noise = Noise::new((m * k * n) as u64);
        let (a, b) = (noise.uniform(m * k, -1.0, 1.0), noise.uniform(k * n, -1.0, 1.0));
        let product = reference::matmul_tiled(&a, &b, [m, k, n]);
        let draft = Draft::new("matmul_tiled").input("a", &[m, k], &a).input("b", &[k, n], &b);
        draft.expect("c", &[m, n], &product).finish()
    };
    [[1, 1, 1], [33, 50, 17], [64, 32, 48]].map(sample).into()
}

pub(super) fn transpose() -> Vec<Sample> {
    let sample = |[rows, columns]: [usize; 2]| {
        let matrix = Noise::new((rows * columns) as u64).uniform(rows * columns, -1.0, 1.0);
        let turned = reference::transpose(&matrix, [rows, columns]);
        let draft = Draft::new("transpose").input("matrix", &[rows, columns], &matrix);
        draft.expect("transposed", &[columns, rows], &turned).finish()
    };
    [[1, 1], [3, 70], [65, 31], [64, 96]].map(sample).into()
}
