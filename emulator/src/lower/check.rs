//! Emits the optional checks: if they are on, each instruction that accesses memory is preceded by a check of its
//! access.

use super::emitter::Emitter;
use crate::program::Op;
use crate::program::memory::{Address, Check, Kinds};

impl Emitter<'_, '_> {
    /// Emits a check of the access that follows, if checks are on.
    pub fn check(&mut self, check: Check) {
        if self.symbols.checked {
            self.push(Op::Check(Box::new(check)));
        }
    }
}

impl Check {
    pub fn load(address: Address, bytes: u32, strong: bool) -> Check {
        Check { address, bytes, part: None, kinds: Kinds { reads: true, writes: false, strong }, values: None }
    }

    pub fn store(address: Address, bytes: u32, strong: bool, slots: &[u32], wide: bool) -> Check {
        // Without slots, the written value is not known.
        let values = (!slots.is_empty()).then(|| (slots.to_vec(), wide));
        Check { address, bytes, part: None, kinds: Kinds { reads: false, writes: true, strong }, values }
    }

    pub fn atomic(address: Address, bytes: u32) -> Check {
        Check { address, bytes, part: None, kinds: Kinds { reads: true, writes: true, strong: true }, values: None }
    }
}
