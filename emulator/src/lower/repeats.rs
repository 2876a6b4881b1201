//! Finds accesses by an address that was looked at just before, so that the warp's pattern need not be found again.
//!
//! That holds within a stretch of code that a group of lanes runs without a pause: no branch enters it, it has nothing
//! but operations on registers, loads and stores, and nothing in it writes the address. A group only ever stands at the
//! start of such a stretch, or at an instruction that ends one.

use std::collections::HashSet;

use crate::ops::lanes::{LANES, NO_SLOT};
use crate::program::memory::{Access, REMEMBERED_MAX, Reach, Repeat};
use crate::program::{Function, Op};

/// The widest a plane can be.
const PLANE_BYTES: u32 = LANES as u32 * 8;

/// The addresses known at one place: their slots, where their numbers say.
#[derive(Default)]
struct Known {
    slots: Vec<u32>,
}

impl Known {
    /// Somebody writes the plane at `written`.
    fn write(&mut self, written: u32) {
        for slot in &mut self.slots {
            if slot.abs_diff(written) < PLANE_BYTES {
                *slot = NO_SLOT;
            }
        }
    }

    /// How an access by the address in `slot` finds its pattern.
    fn access(&mut self, slot: u32, always: bool) -> Repeat {
        if let Some(number) = self.slots.iter().position(|known| *known == slot) {
            return Repeat::Again(number as u8);
        }
        // One that may not run has nothing to tell to those after it.
        if !always || self.slots.len() == REMEMBERED_MAX {
            return Repeat::No;
        }
        self.slots.push(slot);
        Repeat::First(self.slots.len() as u8 - 1)
    }
}

/// Tells the accesses of `function`, whose jumps lead to places, how they find their patterns. Instructions under the
/// guard `always`, not inverted, run in all lanes that come to them.
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
    // Addresses of 32 bits are looked at for patterns in shared memory alone, where they wrap around.
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
