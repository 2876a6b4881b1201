//! A stand-in for NVIDIA's `libcuda` that runs PTX on the CPU, with the CUDA driver API.
//!
//! [`module::Module::load`] parses and lowers PTX text; [`simt::launch`] runs one of its kernels over a
//! [`memory::Memory`]. The `driver` module adds contexts, streams, events and graphs, and `exports` has the exported C
//! functions, which only convert arguments. An instruction that the emulator does not implement is an error with its
//! line when the module is loaded: the emulator never computes something else silently.

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
