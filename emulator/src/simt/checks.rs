//! What the checks know about one block: who touched which byte of its shared memory last, and which bytes of shared
//! and local memory hold something.

mod clocks;
mod races;
mod written;

use self::clocks::Clocks;
use self::races::Races;
use self::written::Written;
use crate::checks::Checks;

pub use self::races::{Hazard, HazardKind, Stamp, Touch};

/// The checks of the block that a context runs.
#[derive(Debug)]
pub struct BlockChecks {
    pub checks: Checks,
    pub clocks: Clocks,
    pub races: Races,
    pub written: Written,
    /// Counts the accesses, so that those of one instruction are known.
    pub visit: u32,
}

impl BlockChecks {
    /// `reserved` bytes at the start of shared memory are the machine's, and hold something.
    pub fn new(checks: Checks, threads: u32, shared_bytes: u64, local_bytes: u64, reserved: u32) -> BlockChecks {
        BlockChecks {
            checks,
            clocks: Clocks::new(threads),
            races: Races::new(if checks.races { shared_bytes } else { 0 }),
            written: Written::new(if checks.uninitialised { shared_bytes } else { 0 }, local_bytes, reserved),
            visit: 0,
        }
    }

    /// Forgets the block before.
    pub fn start_block(&mut self) {
        self.clocks.start();
        self.races.start_block();
        self.written.start_block();
    }

    /// A function begins: what its frame in local memory held before is no longer there.
    pub fn enter_frame(&mut self, warp: u32, lanes: u32, start: u64, bytes: u64) {
        if self.checks.uninitialised {
            self.written.forget_local(warp, lanes, start, bytes);
        }
    }
}
