//! Integer arithmetic.

use super::super::emitter::{Emitter, Lowered};
use super::super::modifiers::Modifiers;
use crate::ops::lanes::Slots;
use crate::ops::{carry, dot, integer};
use crate::program::{Logic, Op};
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;

impl<'a> Emitter<'a, '_> {
    pub(super) fn integer(
        &mut self,
        name: &'a str,
        ty: Type,
        sources: usize,
        m: &mut Modifiers<'a>,
        operands: &[Operand<'a>],
    ) -> Lowered<()> {
        let half = m.one_of(&["lo", "hi", "wide"]);
        let writes_carry = m.take("cc");
        let suffix = m.one_of(&["sat", "relu"]);
        m.finish()?;
        // Products have to name the part that they return (`.lo`, `.hi`, `.wide`); other instructions can't.
        if half.is_some() != matches!(name, "mul" | "mad" | "madc" | "mul24" | "mad24") {
            return Err(self.unsupported());
        }
        let mut spelled = name.to_owned();
        for part in half.into_iter().chain(suffix) {
            spelled = format!("{spelled}.{part}");
        }
        if writes_carry || matches!(name, "addc" | "subc" | "madc") {
            return self.carrying(spelled, ty, writes_carry, operands);
        }
        if half != Some("wide") {
            return self.emit(integer::arithmetic(&spelled, ty), operands, ty, &vec![ty; sources]);
        }
        let wide = if ty.bits() == 16 { Type::U32 } else { Type::U64 };
        let types = if name == "mad" { vec![ty, ty, wide] } else { vec![ty, ty] };
        self.emit(integer::arithmetic(&spelled, ty), operands, wide, &types)
    }

    fn carrying(&mut self, mut spelled: String, ty: Type, writes: bool, operands: &[Operand<'a>]) -> Lowered<()> {
        let multiplies = spelled.starts_with("mad");
        if spelled.ends_with(".hi") && ty.is_signed() {
            spelled.push_str(".signed");
        }
        let known = matches!(ty, Type::U32 | Type::S32 | Type::U64 | Type::S64);
        let lanes = carry::carrying(&spelled, ty).filter(|_| known).ok_or_else(|| self.unsupported())?;
        let sources = if multiplies { 3 } else { 2 };
        self.arity(operands, sources + 1..=sources + 1)?;
        let a = self.typed_source(&operands[1], ty)?;
        let b = self.typed_source(&operands[2], ty)?;
        let c = if multiplies { self.typed_source(&operands[3], ty)? } else { b };
        let d = self.typed_target(&operands[0], ty)?;
        let e = self.carry_slot();
        // Only `.cc` writes the carry flag; without it the flag keeps its value.
        let flag = if writes { e } else { self.copied_mask(e) };
        self.push_lanes(lanes, Slots { d, a, b, c, e: flag });
        Ok(())
    }

    fn copied_mask(&mut self, slot: u32) -> u32 {
        let copy = self.layout.mask();
        self.push(Op::Predicate { function: Logic::Copy, d: copy, a: slot, b: slot, invert_b: false });
        copy
    }

    /// Lowers arithmetic on two 16-bit integers in one register.
    pub(super) fn paired_integers(
        &mut self,
        name: &'a str,
        signed: bool,
        m: &mut Modifiers<'a>,
        operands: &[Operand<'a>],
    ) -> Lowered<()> {
        let relu = m.take("relu");
        m.finish()?;
        let spelled = if relu { format!("{name}.relu") } else { name.to_owned() };
        self.emit(integer::paired(&spelled, signed), operands, Type::B32, &[Type::B32; 2])
    }

    /// Lowers `vabsdiff2` and `vabsdiff4`, the only video instructions that compilers still emit, for `__vabsdiffu4`,
    /// `__vsadu2` and the like.
    pub(super) fn differences(
        &mut self,
        name: &'a str,
        m: &mut Modifiers<'a>,
        operands: &[Operand<'a>],
    ) -> Lowered<()> {
        let sum = m.take("add");
        let types = [m.ty()?, m.ty()?, m.ty()?];
        m.finish()?;
        let bits = if name == "vabsdiff2" { 16 } else { 8 };
        let lanes = dot::differences(bits, sum).filter(|_| types == [Type::U32; 3]);
        self.emit(lanes, operands, Type::U32, &[Type::U32; 3])
    }

    pub fn dot(&mut self, name: &'a str, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let part = m.one_of(&["lo", "hi"]);
        let (a, b) = (m.ty()?, m.ty()?);
        m.finish()?;
        let spelled = part.map_or(name.to_owned(), |part| format!("{name}.{part}"));
        let words = |ty| matches!(ty, Type::U32 | Type::S32);
        let lanes = dot::dot(&spelled, a.is_signed(), b.is_signed()).filter(|_| words(a) && words(b));
        self.emit(lanes, operands, Type::B32, &[Type::B32; 3])
    }
}
