//! The kernel catalog: kernels that every worker has, so that a producer only names one. Besides, [`declaration`] reads
//! the signatures of kernels in CUDA C++.
//!
//! Each kernel consists of three files next to this crate's `src/`:
//!
//! - `<name>.cu`: CUDA C, for people to read and for NVRTC to compile;
//! - `<name>.toml`: the manifest, which says what the kernel takes, how it is launched, and how exact it is
//!   ([`manifest`]);
//! - `<name>.ptx`: NVRTC's output. Its first line states the source and the compiler ([`provenance`]); a test compares
//!   it with the source.
//!
//! [`resolve()`] turns a task that names a catalog kernel into its plain form, with every buffer, launch and output
//! filled in. From there on, a catalog task is handled like any other. [`mod@reference`] computes the same results on
//! the CPU, and [`sample`] has inputs with their expected results. This crate does no I/O and uses no CUDA.
//!
//! To add a kernel, write the source and the manifest, list the name in `embedded`, create an empty `.ptx`, and let
//! `cargo xtask kernels` fill it. Then add a reference and samples. Tests compare all of them with each other.

pub mod catalog;
pub mod compare;
pub mod declaration;
mod embedded;
pub mod expression;
pub mod manifest;
pub mod provenance;
pub mod reference;
pub mod resolve;
pub mod sample;
pub mod spelling;

pub use catalog::{Catalog, Kernel, catalog};
pub use manifest::{BufferSpec, Role, ScalarSpec, Tolerance};
pub use resolve::{Problem, ResolveError, resolve};
