//! The interpreter: runs kernels with 32 lanes in lockstep (SIMT), the warps of a block in turn, and blocks on several
//! threads.
//!
//! [`launch`] hands block numbers to worker threads, which are kept for later launches ([`team`]). Each thread runs one
//! block at a time to its end ([`block`]), the warps in turn, each until it ends or waits ([`warp`]). The state of a
//! block belongs to the thread that runs it; blocks share only device memory. Blocks of a cooperative launch
//! ([`cooperative`]) take turns, and so do other blocks that may wait for each other ([`resident`]).

pub mod access;
mod atomic;
mod block;
mod builtin;
mod bulk;
mod checks;
mod collective;
mod config;
mod context;
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
pub use self::config::{LaunchConfig, RunLimits, RunOptions};
pub use self::launch::{launch, launch_cooperative};
pub use self::print::LINE_BYTES_MAX as PRINT_BYTES_MAX;
