//! References for all catalog kernels, in plain safe Rust on the CPU. Results are compared with them.
//!
//! The references are simple rather than fast, and share only the definition with the CUDA sources. If a kernel's
//! rounding is reproducible (integers, or fused operations in a fixed order), results must be equal bit for bit.
//! Otherwise the reference computes in double precision, and the manifest's tolerance bounds the difference to single
//! precision.

mod arrays;
mod images;
mod models;
pub mod philox;
mod sums;

pub use arrays::{matmul_tiled, saxpy, transpose, vector_add};
pub use images::{MandelbrotView, convolve_2d, mandelbrot, sobel};
pub use models::{Priced, black_scholes, monte_carlo_pi, nbody_step};
pub use sums::{histogram, reduce_sum, scan_inclusive};

#[cfg(test)]
mod tests;
