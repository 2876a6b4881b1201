//! Tests of executor children on the emulator, from the supervisor's side: results, failures, and the effects of a
//! death.
//!
//! These tests start the worker's own binary. Those that compile CUDA C need NVRTC, which `cargo xtask test` installs.

mod blobs;
mod compiling;
mod failing;
mod harness;
mod images;
mod late_loading;
mod launches;
mod leaving;
mod living;
mod memory;
mod printing;
mod progress;
mod running;
mod selftest;
mod sharing;
mod trains;
