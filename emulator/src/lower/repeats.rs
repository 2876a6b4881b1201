//! Finds accesses that use an address register again, so that the interpreter need not look for the pattern of the
//! warp's addresses again (see [`Repeat`]).
//!
//! The pattern stays valid within a stretch of code that a group of lanes runs without interruption: no branch enters
//! it, it contains only register operations, loads and stores, and nothing in it writes the address. A group can only
//! pause at the start of such a stretch, or at an instruction that ends one.

use std::collections::HashSet;

use crate::ops::lanes::{LANES, NO_SLOT};
use crate::program::memory::{REMEMBERED_MAX, Reach, Repeat};
use crate::program::{Function, Op};
use crate::simt::access::Access;

/// Maximum bytes of a plane.
const PLANE_BYTES: u32 = LANES as u32 * 8;

/// The address registers whose patterns are known at a place; the index of a slot is the pattern's number.
#[derive(Default)]
struct Known {
    slots: Vec<u32>,
}

impl Known {
    /// Forgets patterns whose register overlaps the written plane.
    fn write(&mut self, written: u32) {
        for slot in &mut self.slots {
            if slot.abs_diff(written) < PLANE_BYTES {
                *slot = NO_SLOT;
            }
        }
    }

    /// Returns how an access by the address in `slot` finds its pattern.
    fn access(&mut self, slot: u32, always: bool) -> Repeat {
        if let Some(number) = self.slots.iter().position(|known| *known == slot) {
            return Repeat::Again(number as u8);
        }
        // An access under a guard may not run, so later accesses can't rely on its pattern.
        if !always || self.slots.len() == REMEMBERED_MAX {
            return Repeat::No;
        }
        self.slots.push(slot);
        Repeat::First(self.slots.len() as u8 - 1)
    }
}

/// Sets how each access of `function` finds its pattern; jumps already contain places. Instructions whose guard is
/// `always`, not inverted, run in all lanes that reach them.
pub fn find(function: &mut Function, always: u32) {
    let mut targets = HashSet::new();
    for instruction in &function.code {
        match &instruction.op {
            Op::Jump(target) => {
                targets.insert(*target);
            }
            Op::JumpTable { targets: table, .. } => targets.extend(table.iter().copied()),
            _ => {}
        }
    }
    let mut known = Known::default();
    for (place, instruction) in function.code.iter_mut().enumerate() {
        if targets.contains(&(place as u32)) {
            known = Known::default();
        }
        let runs_always = (instruction.guard, instruction.invert) == (always, 0);
        match &mut instruction.op {
            Op::Lanes { slots, .. } => known.write(slots.d),
            Op::Predicate { .. } => {}
            Op::Load(access) => {
                note(access, &mut known, runs_always);
                access.slots.iter().filter(|slot| **slot != NO_SLOT).for_each(|slot| known.write(*slot));
            }
            Op::Store(access) => note(access, &mut known, runs_always),
            _ => known = Known::default(),
        }
    }
}

fn note(access: &mut Access, known: &mut Known, always: bool) {
    let address = &access.address;
    // For 32-bit addresses patterns are only found in shared memory, where addresses wrap around.
    let has_pattern = match address.reach {
        Reach::Shared => true,
        Reach::Global | Reach::Generic => address.wide || address.index.is_some(),
        Reach::Local | Reach::Param => false,
    };
    access.repeat = Repeat::Never;
    if has_pattern && !access.ordered {
        access.repeat = known.access(access.address.slot, always);
    }
}
