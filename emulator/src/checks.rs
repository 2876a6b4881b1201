//! Optional checks that no GPU makes: races in shared memory and reads of unwritten memory, much as NVIDIA's
//! `compute-sanitizer` does. They are a property of a device's memory ([`crate::memory::Memory::checked`]), because
//! every write has to be recorded from the start. Modules that are loaded for such memory contain the checks in their
//! code; all others run without any cost. A finding ends the launch as [`crate::fault::FaultKind::LaunchFailed`].
//!
//! Race check: two accesses to one byte of shared memory by different threads of a block are a race if at least one of
//! them is a write and nothing orders them. They are ordered by a barrier of the block or of the warp, and by an
//! operation of several lanes, such as a shuffle. A strong operation (atomic, volatile, relaxed, acquire or release)
//! orders them too, if one thread does it after its access and the other does one on the same location before its own
//! access. Two strong accesses do not race, and neither do two writes of equal values. Running in lockstep orders
//! nothing. The check misses a race that is hidden by a strong operation without the fence that it needs, a race
//! between lanes of different warps that passed a barrier in part, and an asynchronous copy that was not waited for.
//!
//! Uninitialised reads: kernels, copies and fills initialise memory, and a copy on the device copies this state with
//! the bytes. Variables of a module are initialised. Every byte of a load counts, including unused bytes of a vector or
//! a structure.

use thiserror::Error;

/// Which checks are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Reports unsynchronized accesses of a block's threads to shared memory.
    pub races: bool,
    /// Reports loads of bytes that were never written.
    pub uninitialised: bool,
}

/// A setting contains a word that is not the name of a check.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("unknown check `{name}`")]
pub struct UnknownCheck {
    pub name: String,
}

/// Names of the checks in settings.
pub const NAMES: [&str; 2] = ["races", "uninitialised"];

impl Checks {
    /// Parses comma-separated names of checks; an empty text turns all checks off.
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
