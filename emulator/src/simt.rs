//! Runs kernels: 32 lanes in step, warps in turn, blocks over threads.
//!
//! The life of a launch: [`launch`] hands block numbers to worker threads, which are kept ([`team`]); each runs one block at a time to its end
//! ([`block`]), its warps in turn, each until it ends or waits ([`warp`]). All state of a block belongs to the thread
//! that runs it; blocks meet only in device memory. The blocks of a cooperative launch ([`cooperative`]) take turns, and
//! so do others that may wait for each other ([`resident`]).

pub mod access;
mod atomic;
mod block;
mod builtin;
mod bulk;
mod checks;
mod collective;
mod cooperative;
mod copy;
mod frames;
mod launch;
mod matrix;
mod phases;
mod print;
mod reduction;
mod resident;
mod specials;
mod team;
mod texture;
mod warp;
mod wide;

pub use self::collective::shuffle;
pub use self::launch::{LaunchConfig, RunLimits, RunOptions, launch, launch_cooperative};
pub use self::print::LINE_BYTES_MAX as PRINT_BYTES_MAX;
