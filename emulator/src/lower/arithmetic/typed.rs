//! Operands whose registers have to be declared with a type that matches the instruction's.

use std::ops::RangeInclusive;

use super::super::emitter::{Emitter, Lowered};
use crate::ops::lanes::{Lanes, Slots};
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;

impl<'a> Emitter<'a, '_> {
    /// Emits `lanes` with a result and sources of the given types.
    pub(super) fn emit(
        &mut self,
        lanes: Option<Lanes>,
        operands: &[Operand<'a>],
        d: Type,
        sources: &[Type],
    ) -> Lowered<()> {
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

    /// Returns the slot of a source: a value of the type, or a register declared with a matching type.
    pub(super) fn typed_source(&mut self, operand: &Operand<'a>, ty: Type) -> Lowered<u32> {
        let slot = self.source(operand, ty)?;
        self.check_type(slot, ty, ty.bits()..=ty.bits())?;
        Ok(slot)
    }

    pub(super) fn typed_target(&mut self, operand: &Operand<'a>, ty: Type) -> Lowered<u32> {
        let slot = self.target(operand, ty)?;
        self.check_type(slot, ty, ty.bits()..=ty.bits())?;
        Ok(slot)
    }

    /// Checks the declared type of a register; other slots have none.
    pub(super) fn check_type(&self, slot: u32, ty: Type, bits: RangeInclusive<u32>) -> Lowered<()> {
        match self.layout.declared.get(&slot) {
            Some(declared) if !ty.accepts(*declared) || !bits.contains(&declared.bits()) => {
                Err(self.syntax("register of the wrong type"))
            }
            _ => Ok(()),
        }
    }
}
