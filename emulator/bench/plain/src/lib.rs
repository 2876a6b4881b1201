//! What the benchmark's kernels compute, as one would write it in Rust for one thread: no blocks, no intrinsics.
//!
//! `cargo xtask bench-emulator` builds this twice as a C library, once with the compiler's vectorisers switched off, and the
//! benchmark opens both. Each kernel takes its buffers in the order of the CUDA kernel's parameters.

mod exports;

pub mod array;
pub mod matrix;
pub mod simulation;

pub use self::exports::{Kernel, Span, kernel};
