//! Inputs for every catalog kernel, with the results that are expected of them.
//!
//! Sizes are small but not trivial, and most are no multiple of a block or a tile, for that is where kernels go wrong. The
//! inputs are the same at every call.

use gpufleet_schema::Task;

pub use crate::compare::{Difference, Expected, Mismatch, compare};

mod arrays;
mod draft;
mod images;
mod models;
mod noise;
mod sums;

/// A task for a catalog kernel, and what it must give.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// As a producer would write it: no launches, no outputs, no scratch.
    pub task: Task<'static>,
    /// One per output, in the manifest's order.
    pub expected: Vec<Expected>,
}

/// The samples of a kernel; none for a name that is not in the catalog.
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
