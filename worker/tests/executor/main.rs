//! Executor children on the emulator, from the supervisor's side: what jobs get back, how they fail, and what dies with whom.
//!
//! These tests start the worker's own binary. Those that compile CUDA C need NVRTC, which `cargo xtask test` installs.

mod blobs;
mod compiling;
mod failing;
mod harness;
mod images;
mod late_loading;
mod launches;
mod living;
mod memory;
mod printing;
mod running;
mod selftest;
