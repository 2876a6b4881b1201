//! Assigns slots to registers: two registers may share one if their spans have no instruction in common.
//!
//! Spans may not even share a single instruction, so that a result never overwrites an operand that PTX keeps apart.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::layout::{MASKS_PER_PLANE, PLANE_BYTES, Width};
use super::liveness::Span;
use crate::ops::lanes::NO_SLOT;

/// The slots of registers in a frame.
#[derive(Debug, PartialEq, Eq)]
pub struct SlotAssignment {
    /// Slot of each register; no slot if no instruction names it.
    pub of: Vec<u32>,
    /// Type of each plane of the frame.
    pub planes: Vec<Width>,
}

/// Error: more registers are live at once than fit a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overfull {
    /// The first instruction with too many live registers.
    pub at: u32,
    /// Maximum number of words that live registers need.
    pub words: u32,
}

/// Slots of one width: their number, and the taken ones by the last instruction that needs them.
#[derive(Debug, Default)]
struct Pool {
    count: u32,
    taken: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Pool {
    fn take(&mut self, span: Span) -> u32 {
        let slot = match self.taken.peek() {
            Some(Reverse((last, slot))) if *last < span.first => {
                let slot = *slot;
                self.taken.pop();
                slot
            }
            _ => {
                self.count += 1;
                self.count - 1
            }
        };
        self.taken.push(Reverse((span.last, slot)));
        slot
    }
}

/// The slots of each width. A slot keeps its width, so that a word never overlaps a part of a 64-bit value.
#[derive(Debug, Default)]
struct Pools {
    masks: Pool,
    words: Pool,
    doubles: Pool,
}

impl Pools {
    fn of(&mut self, width: Width) -> &mut Pool {
        match width {
            Width::Mask => &mut self.masks,
            Width::Word => &mut self.words,
            Width::Double => &mut self.doubles,
        }
    }

    fn mask_planes(&self) -> u32 {
        self.masks.count.div_ceil(MASKS_PER_PLANE)
    }

    fn planes(&self) -> u32 {
        self.mask_planes() + self.words.count + 2 * self.doubles.count
    }

    /// Returns the type of each plane.
    fn widths(&self) -> Vec<Width> {
        let runs = [
            (Width::Mask, self.mask_planes()),
            (Width::Word, self.words.count),
            (Width::Double, 2 * self.doubles.count),
        ];
        runs.into_iter().flat_map(|(width, count)| (0..count).map(move |_| width)).collect()
    }

    /// Returns the position of a slot. Masks come first, so that the mask that is always set keeps slot 0, which
    /// instructions use for missing operands.
    fn place(&self, width: Width, slot: u32) -> u32 {
        match width {
            Width::Mask => slot * (PLANE_BYTES / MASKS_PER_PLANE),
            Width::Word => (self.mask_planes() + slot) * PLANE_BYTES,
            Width::Double => (self.mask_planes() + self.words.count + 2 * slot) * PLANE_BYTES,
        }
    }
}

/// Assigns a slot to every register, in the order of their first instructions, in a frame of at most `planes_max`
/// words.
pub fn assign(spans: &[Span], widths: &[Width], planes_max: u32) -> Result<SlotAssignment, Overfull> {
    let mut order: Vec<u32> = (0..spans.len() as u32).filter(|one| spans[*one as usize] != Span::NOWHERE).collect();
    order.sort_by_key(|register| spans[*register as usize].first);
    let mut pools = Pools::default();
    let mut of = vec![NO_SLOT; spans.len()];
    let mut too_much = None;
    for register in order {
        let (span, width) = (spans[register as usize], widths[register as usize]);
        of[register as usize] = pools.of(width).take(span);
        if too_much.is_none() && pools.planes() > planes_max {
            too_much = Some(span.first);
        }
    }
    if let Some(at) = too_much {
        return Err(Overfull { at, words: pools.planes() });
    }
    let used = of.iter_mut().zip(widths).filter(|(slot, _)| **slot != NO_SLOT);
    used.for_each(|(slot, width)| *slot = pools.place(*width, *slot));
    Ok(SlotAssignment { of, planes: pools.widths() })
}

#[cfg(test)]
mod tests {
    use super::{Overfull, PLANE_BYTES, Span, assign};
    use crate::lower::layout::Width::{self, Double, Mask, Word};
    use crate::ops::lanes::NO_SLOT;

    fn slots(registers: &[(u32, u32, Width)]) -> (Vec<u32>, u32) {
        let spans: Vec<Span> = registers.iter().map(|(first, last, _)| Span { first: *first, last: *last }).collect();
        let widths: Vec<Width> = registers.iter().map(|(.., width)| *width).collect();
        let slots = assign(&spans, &widths, 100).unwrap();
        (slots.of, slots.planes.len() as u32 * PLANE_BYTES)
    }

    #[test]
    fn a_slot_is_free_behind_the_last_instruction_of_its_register() {
        assert_eq!(slots(&[(0, 3, Word), (3, 5, Word), (4, 6, Word)]), (vec![0, 128, 0], 256));
    }

    #[test]
    fn registers_that_are_live_together_have_slots_of_their_own() {
        let (of, _) = slots(&[(0, 9, Word), (1, 8, Word), (2, 7, Word), (8, 9, Word)]);
        assert_eq!(of, [0, 128, 256, 256]);
    }

    #[test]
    fn slots_keep_their_width_and_the_first_mask_is_at_the_start() {
        let registers = [(0, 9, Mask), (0, 1, Word), (0, 1, Double), (2, 3, Double), (2, 3, Mask), (4, 5, Mask)];
        assert_eq!(slots(&registers), (vec![0, 128, 256, 256, 4, 4], 512));
    }

    #[test]
    fn what_no_instruction_names_has_no_slot() {
        let spans = [Span::NOWHERE, Span { first: 0, last: 0 }];
        assert_eq!(assign(&spans, &[Double, Word], 1).unwrap().of, [NO_SLOT, 0]);
    }

    #[test]
    fn too_many_at_once_are_told_with_their_place() {
        let spans = [(0, 9), (1, 4), (3, 8), (4, 9), (9, 9)].map(|(first, last)| Span { first, last });
        assert_eq!(assign(&spans, &[Word; 5], 3), Err(Overfull { at: 4, words: 4 }));
        assert!(assign(&spans, &[Word; 5], 4).is_ok());
    }
}
