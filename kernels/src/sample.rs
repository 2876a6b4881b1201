//! Inputs and expected results for every catalog kernel.
//!
//! Sizes are small but not trivial. Most are not a multiple of a block or a tile, because kernels tend to fail there.
//! Every call returns equal inputs.

pub use crate::compare::{Difference, Expected, Mismatch, compare};

mod arrays;
mod draft;
mod images;
mod models;
mod noise;
mod sums;

pub use draft::Sample;

/// Returns the samples of a kernel; none for a name that is not in the catalog.
pub fn samples(kernel: &str) -> Vec<Sample> {
    match kernel {
        "saxpy" => arrays::saxpy(),
        "vector_add" => arrays::vector_add(),
        "matmul_tiled" => arrays::matmul_tiled(),
        "transpose" => arrays::transpose(),
        "reduce_sum" => sums::reduce_sum(),
        "scan_inclusive" => sums::scan_inclusive(),
        "histogram" => sums::histogram(),
        "convolve_2d" => images::convolve_2d(),
        "sobel" => images::sobel(),
        "mandelbrot" => images::mandelbrot(),
        "black_scholes" => models::black_scholes(),
        "monte_carlo_pi" => models::monte_carlo_pi(),
        "nbody_step" => models::nbody_step(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
