//! The layout of a function's frame: which registers have which slots.

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

/// The registers of a frame so far, and the constants that the code asked for.
#[derive(Debug, Default)]
pub struct Layout {
    pub bytes: u32,
    /// Type of each plane.
    pub planes: Vec<Width>,
    masks_left: u32,
    next_mask: u32,
    words: HashMap<u32, u32>,
    /// Values of the word constants, by slot.
    values: HashMap<u32, u32>,
    doubles: HashMap<u64, u32>,
    masks: HashMap<u32, u32>,
    /// Slots that no instruction writes: constants and values that the machine provides.
    pub fixed: HashSet<u32>,
    /// The 64-bit slots among `fixed` whose lanes may differ.
    pub varied: HashSet<u32>,
    /// Declared type of each register.
    pub declared: HashMap<u32, Type>,
    pub constants: Vec<Constant>,
    pub registers: u32,
}

/// Bytes of a word plane. A 64-bit register takes two planes, and 32 masks share one.
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
        // Lowering ends with an error long before this would overflow.
        self.bytes = (self.planes.len() as u32).saturating_mul(PLANE_BYTES);
        slot
    }

    /// Returns the numbers of all registers so far.
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

    /// Reports whether all lanes of a 64-bit plane always have equal values.
    pub fn is_uniform(&self, slot: u32) -> bool {
        self.fixed.contains(&slot) && !self.varied.contains(&slot)
    }

    /// Returns the constant in a word slot, if it has one.
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

/// Consecutive numbers for the registers that have slots.
#[derive(Debug)]
pub struct Numbers {
    /// Number of the first register in each plane.
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

    /// Returns the number of the register in a slot.
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
