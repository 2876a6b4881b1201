//! Access checks for everything but kernels: copies, fills, and what the driver itself reads and writes.

use std::sync::PoisonError;

use super::{BadAddress, Memory, Owner, Range};
use crate::fault::describe_access;

impl Range {
    fn lets_copies(&self, writes: bool) -> bool {
        match self.owner {
            Owner::Mapping(protection) => protection.allows(writes),
            Owner::Program | Owner::Heap | Owner::Image | Owner::Host => true,
        }
    }
}

impl Memory {
    /// Checks that `bytes` at `address` are inside one live range, or inside adjacent mappings, and can be read.
    pub fn check(&self, address: u64, bytes: u64) -> Result<(), BadAddress> {
        self.check_for(address, bytes, false)
    }

    /// Checks like [`Memory::check`], for a write.
    pub fn check_writable(&self, address: u64, bytes: u64) -> Result<(), BadAddress> {
        self.check_for(address, bytes, true)
    }

    /// Reports whether `bytes` at `address` are inside adjacent mappings that allow the access.
    pub fn spans_mappings(&self, address: u64, bytes: u64, writes: bool) -> bool {
        self.protection(address).is_some() && self.first_bad(address, bytes, writes).is_none()
    }

    fn check_for(&self, address: u64, bytes: u64, writes: bool) -> Result<(), BadAddress> {
        match self.first_bad(address, bytes, writes) {
            None => Ok(()),
            Some(bad) => Err(self.bad(address, bytes, bad)),
        }
    }

    /// Returns where the first part of a range begins that may not be accessed: at the range's start, or where a
    /// mapping starts or should start.
    fn first_bad(&self, address: u64, bytes: u64, writes: bool) -> Option<u64> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner);
        let mut at = address;
        let mut rest = bytes;
        while rest > 0 {
            let Some((&base, range)) = live.range(..=at).next_back() else { return Some(at) };
            let left = (base + range.bytes).saturating_sub(at);
            if left == 0 || !range.lets_copies(writes) {
                return Some(at);
            }
            if rest <= left {
                return None;
            }
            if !matches!(range.owner, Owner::Mapping(_)) {
                return Some(at);
            }
            (at, rest) = (base + range.bytes, rest - left);
        }
        None
    }

    #[cold]
    pub(super) fn bad(&self, address: u64, bytes: u64, at: u64) -> BadAddress {
        let nearest = describe_access(self, at, bytes.saturating_sub(at - address));
        BadAddress { address, bytes, nearest }
    }
}
