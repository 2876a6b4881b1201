//! The frame of a function: its registers as they are handed out.

use std::collections::{HashMap, HashSet};

use crate::program::Constant;
use crate::ptx::types::Type;

/// A plane's width, or a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    Mask,
    Word,
    Double,
}

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
    masks_left: u32,
    next_mask: u32,
    words: HashMap<u32, u32>,
    doubles: HashMap<u64, u32>,
    masks: HashMap<u32, u32>,
    /// Planes that no instruction writes: constants, and what the machine provides.
    pub fixed: HashSet<u32>,
    /// What registers were declared as.
    pub declared: HashMap<u32, Type>,
    pub constants: Vec<Constant>,
    pub registers: u32,
}

const PLANE: u32 = 128;

impl Layout {
    pub fn word(&mut self) -> u32 {
        self.take(PLANE)
    }

    pub fn double(&mut self) -> u32 {
        self.take(2 * PLANE)
    }

    fn take(&mut self, bytes: u32) -> u32 {
        let slot = self.bytes;
        self.bytes += bytes;
        slot
    }

    pub fn mask(&mut self) -> u32 {
        if self.masks_left == 0 {
            self.next_mask = self.take(PLANE);
            self.masks_left = PLANE / 4;
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
        self.fixed.insert(slot);
        self.constants.push(Constant::Word(slot, value));
        slot
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
