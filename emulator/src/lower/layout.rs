//! The frame of a function: its registers as they are handed out.

use std::collections::{HashMap, HashSet};

use crate::program::Constant;
pub use crate::program::Width;
use crate::ptx::types::Type;

pub fn width(ty: Type) -> Width {
    match ty.bits() {
        1 => Width::Mask,
        64 => Width::Double,
        _ => Width::Word,
    }
}

/// The registers of a frame as they are handed out, and the constants that were asked for.
#[derive(Debug, Default)]
pub struct Layout {
    pub bytes: u32,
    /// What lies in each plane of the frame.
    pub planes: Vec<Width>,
    masks_left: u32,
    next_mask: u32,
    words: HashMap<u32, u32>,
    /// The words by their slots.
    values: HashMap<u32, u32>,
    doubles: HashMap<u64, u32>,
    masks: HashMap<u32, u32>,
    /// Planes that no instruction writes: constants, and what the machine provides.
    pub fixed: HashSet<u32>,
    /// Those among them whose lanes may differ, of 64 bits.
    pub varied: HashSet<u32>,
    /// What registers were declared as.
    pub declared: HashMap<u32, Type>,
    pub constants: Vec<Constant>,
    pub registers: u32,
}

/// A plane of words. Those of 64 bits take two, and masks share one.
pub const PLANE_BYTES: u32 = 128;
pub const MASKS_PER_PLANE: u32 = PLANE_BYTES / 4;

impl Layout {
    pub fn word(&mut self) -> u32 {
        self.take(Width::Word)
    }

    pub fn double(&mut self) -> u32 {
        self.take(Width::Double)
    }

    fn take(&mut self, width: Width) -> u32 {
        let slot = self.bytes;
        self.planes.push(width);
        if width == Width::Double {
            self.planes.push(width);
        }
        // Lowering ends long before this would be too large.
        self.bytes = (self.planes.len() as u32).saturating_mul(PLANE_BYTES);
        slot
    }

    /// The registers of all slots so far.
    pub fn numbers(&self) -> Numbers {
        Numbers::new(&self.planes)
    }

    pub fn mask(&mut self) -> u32 {
        if self.masks_left == 0 {
            self.next_mask = self.take(Width::Mask);
            self.masks_left = MASKS_PER_PLANE;
        }
        self.masks_left -= 1;
        self.next_mask += 4;
        self.next_mask - 4
    }

    pub fn constant(&mut self, value: u32) -> u32 {
        if let Some(slot) = self.words.get(&value) {
            return *slot;
        }
        let slot = self.word();
        self.words.insert(value, slot);
        self.values.insert(slot, value);
        self.fixed.insert(slot);
        self.constants.push(Constant::Word(slot, value));
        slot
    }

    /// Whether all lanes of a plane of 64 bits hold the same value, always.
    pub fn is_uniform(&self, slot: u32) -> bool {
        self.fixed.contains(&slot) && !self.varied.contains(&slot)
    }

    /// The constant in a slot of words, if it holds one.
    pub fn value(&self, slot: u32) -> Option<u32> {
        self.values.get(&slot).copied()
    }

    pub fn constant64(&mut self, value: u64) -> u32 {
        if let Some(slot) = self.doubles.get(&value) {
            return *slot;
        }
        let slot = self.double();
        self.doubles.insert(value, slot);
        self.fixed.insert(slot);
        self.constants.push(Constant::Double(slot, value));
        slot
    }

    pub fn constant_mask(&mut self, value: u32) -> u32 {
        if let Some(slot) = self.masks.get(&value) {
            return *slot;
        }
        let slot = self.mask();
        self.masks.insert(value, slot);
        self.constants.push(Constant::Mask(slot, value));
        slot
    }
}

/// Numbers for the registers that have slots, one after the other.
#[derive(Debug)]
pub struct Numbers {
    /// The first register of each plane.
    planes: Vec<u32>,
    pub widths: Vec<Width>,
}

impl Numbers {
    fn new(planes: &[Width]) -> Numbers {
        let mut numbers = Numbers { planes: Vec::with_capacity(planes.len()), widths: Vec::new() };
        for width in planes {
            numbers.planes.push(numbers.widths.len() as u32);
            let count = if *width == Width::Mask { MASKS_PER_PLANE } else { 1 };
            numbers.widths.extend((0..count).map(|_| *width));
        }
        numbers
    }

    /// The register in a slot that was handed out.
    pub fn of(&self, slot: u32) -> u32 {
        self.planes[(slot / PLANE_BYTES) as usize] + slot % PLANE_BYTES / (PLANE_BYTES / MASKS_PER_PLANE)
    }
}

#[cfg(test)]
mod tests {
    use super::{Layout, Width};

    #[test]
    fn every_slot_has_a_number_of_its_own() {
        let mut layout = Layout::default();
        let mut slots: Vec<(u32, Width)> = (0..40).map(|_| (layout.mask(), Width::Mask)).collect();
        slots.push((layout.word(), Width::Word));
        slots.push((layout.double(), Width::Double));
        slots.push((layout.word(), Width::Word));
        let numbers = layout.numbers();
        let mut found: Vec<u32> = slots.iter().map(|(slot, _)| numbers.of(*slot)).collect();
        let width = |(number, (_, width)): (&u32, &(u32, Width))| numbers.widths[*number as usize] == *width;
        assert!(found.iter().zip(&slots).all(width));
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), slots.len());
    }
}
