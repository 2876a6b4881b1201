//! What the emulator can look for beyond what a device does. The checks belong to a device's memory
//! ([`crate::memory::Memory::checked`]), since what was written has to be known from the start; modules that are
//! loaded over such memory carry the checks in their code, and all others run as if there were none. What is found ends
//! the launch as [`crate::fault::FaultKind::LaunchFailed`].
//!
//! Races are those of shared memory. Two accesses of one byte by different threads of a block, at least one of which
//! writes, are a race unless something orders them: a barrier of the block or of the warp, an operation of several lanes
//! such as a shuffle, or an atomic, volatile or otherwise strong operation on a place in memory that one thread makes
//! behind its access and the other before its own. Strong accesses are no race among themselves. Nor are two writes of
//! the same value. Lanes that run in step are not in order by that. So much is not found: a race that a strong operation
//! without the fence that it would need hides, one between lanes of different warps that a barrier passed in part, and an
//! asynchronous copy that nobody has waited for.
//!
//! Memory is initialised by kernels, copies and fills; copies on the device hand on what is known. Variables of a module
//! are initialised. Every byte of a load counts, also where a vector or a structure has bytes that nobody wants.

use thiserror::Error;

/// Which checks are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Unsynchronized accesses of a block's threads to shared memory.
    pub races: bool,
    /// Loads of bytes that nobody has written.
    pub uninitialised: bool,
}

/// A word that names no check.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("unknown check `{name}`")]
pub struct UnknownCheck {
    pub name: String,
}

/// The checks by their names, as settings list them.
pub const NAMES: [&str; 2] = ["races", "uninitialised"];

impl Checks {
    /// Reads names separated by commas; none at all is no check.
    pub fn parse(text: &str) -> Result<Checks, UnknownCheck> {
        let mut checks = Checks::default();
        for name in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
            match name {
                "races" => checks.races = true,
                "uninitialised" => checks.uninitialised = true,
                _ => return Err(UnknownCheck { name: name.to_owned() }),
            }
        }
        Ok(checks)
    }

    pub fn any(self) -> bool {
        self.races || self.uninitialised
    }
}
