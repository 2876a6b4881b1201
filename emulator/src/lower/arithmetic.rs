//! Instructions that compute. Each file here takes one kind of them; what PTX does not have is refused, be it a type, a
//! modifier, or modifiers that do not go together.

mod address;
mod bits;
mod compare;
mod convert;
mod float;
mod integer;
mod moves;
mod target;

use std::ops::RangeInclusive;

use super::function::{Emitter, Lowered};
use super::modifiers::Modifiers;
use crate::ops::lanes::{Lanes, Slots};
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;

impl<'a> Emitter<'a, '_> {
    /// Emits `lanes` with a result and sources of the given types.
    fn emit(&mut self, lanes: Option<Lanes>, operands: &[Operand<'a>], d: Type, sources: &[Type]) -> Lowered<()> {
        let lanes = lanes.ok_or_else(|| self.unsupported())?;
        self.arity(operands, sources.len() + 1..=sources.len() + 1)?;
        let mut slots = [0; 4];
        for (slot, (operand, ty)) in slots.iter_mut().zip(operands[1..].iter().zip(sources)) {
            *slot = self.typed_source(operand, *ty)?;
        }
        let [a, b, c, e] = slots;
        let d = self.typed_target(&operands[0], d)?;
        self.push_lanes(lanes, Slots { d, a, b, c, e });
        Ok(())
    }

    /// A source that is of the type, or a register declared as something that goes with it.
    fn typed_source(&mut self, operand: &Operand<'a>, ty: Type) -> Lowered<u32> {
        let slot = self.source(operand, ty)?;
        self.check_type(slot, ty, ty.bits()..=ty.bits())?;
        Ok(slot)
    }

    fn typed_target(&mut self, operand: &Operand<'a>, ty: Type) -> Lowered<u32> {
        let slot = self.target(operand, ty)?;
        self.check_type(slot, ty, ty.bits()..=ty.bits())?;
        Ok(slot)
    }

    /// Checks what a register was declared as; what is no register has no declaration.
    fn check_type(&self, slot: u32, ty: Type, bits: RangeInclusive<u32>) -> Lowered<()> {
        match self.layout.declared.get(&slot) {
            Some(declared) if !ty.accepts(*declared) || !bits.contains(&declared.bits()) => {
                Err(self.syntax("register of the wrong type"))
            }
            _ => Ok(()),
        }
    }

    /// What has no entry of its own in the list of mnemonics.
    pub fn arithmetic(&mut self, name: &'a str, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        if matches!(name, "fns" | "bmsk" | "szext") {
            return self.bits(name, m, operands);
        }
        if matches!(name, "vabsdiff2" | "vabsdiff4") {
            return self.differences(name, m, operands);
        }
        let Some(sources) = source_count(name) else { return Err(self.unsupported()) };
        if let Some(pair) = m.one_of(&["u16x2", "s16x2"]) {
            return self.paired_integers(name, pair == "s16x2", m, operands);
        }
        let ty = m.ty()?;
        if ty.is_float() {
            self.float(name, ty, sources, m, operands)
        } else {
            self.integer(name, ty, sources, m, operands)
        }
    }
}

fn source_count(name: &str) -> Option<usize> {
    Some(match name {
        "neg" | "abs" | "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" => 1,
        "add" | "sub" | "mul" | "div" | "rem" | "min" | "max" | "addc" | "subc" | "mul24" | "copysign" => 2,
        "mad" | "madc" | "fma" | "sad" | "mad24" => 3,
        _ => return None,
    })
}
