//! The CUDA driver API on the CPU: a stand-in for NVIDIA's `libcuda` that runs PTX.
//!
//! [`module::Module::load`] parses and lowers PTX text, [`simt::launch`] runs one of its kernels over a
//! [`memory::Memory`]. The `driver` module keeps contexts, streams and events on top, and the exported C functions
//! are a thin skin over that. An instruction that the emulator does not know is an error when the module is loaded,
//! with its line: it never computes something else in silence.

pub mod checks;
mod clock;
pub mod driver;
mod exports;
mod fat_binary;
pub mod fault;
mod lower;
pub mod memory;
pub mod module;
mod ops;
mod program;
mod ptx;
pub mod simt;
pub mod texture;
