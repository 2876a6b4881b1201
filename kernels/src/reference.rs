//! Every catalog kernel again, on the CPU, in plain safe Rust: what results are compared with.
//!
//! These are written to be obviously right, not fast, and share nothing with the CUDA sources but the definition. Where a kernel
//! rounds in a way that can be repeated exactly (integers, fused operations in a fixed order), the reference does the same and results
//! are equal bit for bit; everywhere else the reference computes in double precision, and the manifest's tolerance says how far
//! single precision may be from it.

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
