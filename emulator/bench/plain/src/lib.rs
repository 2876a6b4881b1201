//! The benchmark's kernels in plain, single-threaded Rust, without blocks or intrinsics.
//!
//! `cargo xtask bench-emulator` builds this twice as a C library, once with the compiler's vectorisers off, and the
//! benchmark opens both. Each kernel takes its buffers in the order of the CUDA kernel's parameters.

mod exports;

pub mod array;
pub mod matrix;
pub mod simulation;

pub use self::exports::{Kernel, Span, kernel};
