//! Registers of several parts: vectors, whose parts have names, and `.b128`, which is two 64-bit halves here.

use super::emitter::{Emitter, Lowered};
use super::layout::Width;
use super::symbols::Symbol;
use crate::ptx::tree::Operand;

/// Names of a vector's parts, in order.
const PARTS: [&str; 4] = ["x", "y", "z", "w"];
const COLORS: [&str; 4] = ["r", "g", "b", "a"];

/// Names of the halves of 128 bits inside the emulator; PTX has none.
const HALVES: [&str; 2] = ["low", "high"];

fn part_index(name: &str, quad: bool) -> Option<usize> {
    let place = |names: &[&str]| names.iter().position(|part| *part == name);
    if quad { place(&HALVES) } else { place(&PARTS).or_else(|| place(&COLORS)) }
}

impl<'a> Emitter<'a, '_> {
    /// Returns the slot and width of one part of a vector register.
    pub fn part(&mut self, name: &'a str, part: &str) -> Lowered<(u32, Width)> {
        let found = match self.symbol(name)? {
            Symbol::Tuple { slots, width, quad } => {
                part_index(part, quad).and_then(|index| slots.get(index).map(|slot| (*slot, width)))
            }
            _ => None,
        };
        found.ok_or_else(|| self.syntax(format!("`{name}` has no component `{part}`")))
    }

    /// Returns the parts of `{a, b}`, of a vector register, or of a single operand.
    pub fn elements(&mut self, operand: &Operand<'a>, count: usize) -> Lowered<Vec<Operand<'a>>> {
        let elements = match operand {
            Operand::Vector(elements) => elements.clone(),
            Operand::Name(name) if count > 1 => match self.symbol(name)? {
                Symbol::Tuple { slots, quad: false, .. } => {
                    PARTS.iter().take(slots.len()).map(|part| Operand::Element(name, part)).collect()
                }
                _ => vec![operand.clone()],
            },
            single => vec![single.clone()],
        };
        if elements.len() == count { Ok(elements) } else { Err(self.syntax("wrong number of vector elements")) }
    }

    /// Returns the halves of a `.b128` register, the lower one first.
    pub fn quad(&mut self, operand: &Operand<'a>) -> Lowered<[u32; 2]> {
        let Operand::Name(name) = operand else { return Err(self.syntax("expected a 128-bit register")) };
        match self.symbol(name)? {
            Symbol::Tuple { slots, quad: true, .. } => Ok([slots[0], slots[1]]),
            _ => Err(self.syntax(format!("`{name}` is not a 128-bit register"))),
        }
    }

    /// Returns the halves of a `.b128` register as 64-bit operands.
    pub fn halves(&mut self, operand: &Operand<'a>) -> Lowered<Vec<Operand<'a>>> {
        self.quad(operand)?;
        match operand {
            Operand::Name(name) => Ok(HALVES.map(|half| Operand::Element(name, half)).into()),
            _ => Err(self.syntax("expected a 128-bit register")),
        }
    }
}
