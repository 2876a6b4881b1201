//! State of the optional checks for one block: the latest accesses to each byte of its shared memory, and which bytes
//! of shared and local memory are written.

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
    /// Number of the current instruction's access, which identifies accesses of one instruction.
    pub visit: u32,
}

impl BlockChecks {
    /// Makes the state of a block's checks. The first `reserved` bytes of shared memory belong to the machine and count
    /// as written.
    pub fn new(checks: Checks, threads: u32, shared_bytes: u64, local_bytes: u64, reserved: u32) -> BlockChecks {
        BlockChecks {
            checks,
            clocks: Clocks::new(threads),
            races: Races::new(if checks.races { shared_bytes } else { 0 }),
            written: Written::new(if checks.uninitialised { shared_bytes } else { 0 }, local_bytes, reserved),
            visit: 0,
        }
    }

    /// Forgets the previous block.
    pub fn start_block(&mut self) {
        self.clocks.start();
        self.races.start_block();
        self.written.start_block();
    }

    /// A function begins: its frame in local memory counts as unwritten.
    pub fn enter_frame(&mut self, warp: u32, lanes: u32, start: u64, bytes: u64) {
        if self.checks.uninitialised {
            self.written.forget_local(warp, lanes, start, bytes);
        }
    }
}
