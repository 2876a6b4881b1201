//! Optional checks beyond those of a GPU. They belong to the memory of a device ([`crate::memory::Memory::checked`]), because
//! writes must be known from the start. Modules that are loaded for such memory have the checks in their code; all others
//! run without any. A finding ends the launch as [`crate::fault::FaultKind::LaunchFailed`].
//!
//! Races are those in shared memory. Two accesses to one byte by different threads of a block, at least one of them a
//! write, are a race unless they are ordered. A barrier of the block or of the warp orders them, and so does an operation
//! of several lanes, such as a shuffle. An atomic, volatile or otherwise strong operation on one place in memory orders
//! them if one thread does it after its access and the other before its own. Strong accesses do not race with each other,
//! and neither do two writes of the same value. Lanes that run in step are not ordered by that. The check does not find a
//! race that is hidden by a strong operation without its required fence, a race between lanes of different warps that
//! passed a barrier in part, or an asynchronous copy that has not been waited for.
//!
//! Kernels, copies and fills initialise memory; a copy on the device copies this state too. Variables of a module are
//! initialised. Every byte of a load counts, including unused bytes of a vector or a structure.

use thiserror::Error;

/// Which checks are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Unsynchronized accesses of a block's threads to shared memory.
    pub races: bool,
    /// Loads of bytes that were never written.
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
