//! Runs kernels in the emulator and compares with what Rust computes. One binary, since every one takes its time to link.

mod calls;
mod divergence;
mod faults;
mod harness;
mod instructions;
mod loading;
mod programs;
mod synchronization;
