//! Comparisons (`setp`, `set`), and selection by a predicate (`selp`, `slct`).

use super::super::emitter::{Emitter, Lowered};
use super::super::layout::{Width, width};
use super::super::modifiers::Modifiers;
use crate::ops::lanes::{Lanes, Slots, binary};
use crate::ops::{bits, integer, order};
use crate::program::{Logic, Op};
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;

const RELATIONS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
];

/// The Boolean operation and predicate that a comparison is combined with: operation, slot, and whether it is negated.
type Joined = Option<(Logic, u32, bool)>;

impl<'a> Emitter<'a, '_> {
    pub fn select(&mut self, name: &'a str, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let flush = m.take("ftz");
        let ty = m.ty()?;
        let selector = if name == "selp" { Type::Pred } else { m.ty()? };
        m.finish()?;
        self.arity(operands, 4..=4)?;
        let known = matches!(ty, Type::F32 | Type::F64) || !ty.is_float() && ty.bits() > 8;
        let lanes = match (selector, flush) {
            (Type::Pred, false) if name == "selp" => bits::copy("selp", ty),
            (Type::S32, false) => bits::copy("slct.s32", ty),
            (Type::F32, false) => bits::copy("slct.f32", ty),
            (Type::F32, true) => bits::copy("slct.ftz.f32", ty),
            _ => None,
        };
        self.emit(lanes.filter(|_| known), operands, ty, &[ty, ty, selector])
    }

    pub fn classify(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let class = m.one_of(&["finite", "infinite", "number", "notanumber", "normal", "subnormal"]);
        let ty = m.ty()?;
        m.finish()?;
        let class = class.filter(|_| matches!(ty, Type::F32 | Type::F64)).ok_or_else(|| self.unsupported())?;
        self.arity(operands, 2..=2)?;
        let a = self.typed_source(&operands[1], ty)?;
        let d = self.target(&operands[0], Type::Pred)?;
        let lanes = order::classification(class, ty.bits()).ok_or_else(|| self.unsupported())?;
        self.push_lanes(lanes, Slots { d, a, b: a, ..Slots::default() });
        Ok(())
    }

    /// Lowers `setp` and `set`, with the predicate that the result is combined with, if any.
    pub fn compare(&mut self, name: &'a str, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let relation = m.one_of(&RELATIONS).ok_or_else(|| self.unsupported())?;
        let function = m.one_of(&["and", "or", "xor"]);
        let flush = m.take("ftz");
        let result = if name == "set" { Some(m.ty()?) } else { None };
        let ty = m.ty()?;
        m.finish()?;
        let count = if function.is_some() { 4 } else { 3 };
        self.arity(operands, count..=count)?;
        let joined = match function {
            Some(function) => {
                let (with, invert) = self.predicate(&operands[3])?;
                Some((logic(function), with, invert))
            }
            None => None,
        };
        if matches!(ty, Type::F16x2 | Type::Bf16x2) {
            let lanes = order::paired_comparison(relation, ty, flush).ok_or_else(|| self.unsupported())?;
            return self.compare_pairs(lanes, ty, result, joined, operands);
        }
        let lanes = match ty {
            Type::Pred => None,
            _ if ty.is_float() => order::comparison(relation, ty, flush),
            _ => integer::comparison(relation, ty).filter(|_| !flush),
        };
        let lanes = lanes.ok_or_else(|| self.unsupported())?;
        if let (target @ Operand::Name(_), None, None) = (&operands[0], result, joined) {
            let (a, b) = (self.typed_source(&operands[1], ty)?, self.typed_source(&operands[2], ty)?);
            let d = self.target(target, Type::Pred)?;
            self.push_lanes(lanes, Slots { d, a, b, ..Slots::default() });
            return Ok(());
        }
        let first = self.relation(lanes, ty, operands)?;
        match (&operands[0], result) {
            // `setp` on single 16-bit floats has one result, because the second is for the other half of a pair.
            (Operand::Both(..), None) if matches!(ty, Type::F16 | Type::Bf16) => Err(self.unsupported()),
            (Operand::Both(p, q), None) => {
                let second = self.layout.mask();
                self.push(Op::Predicate { function: Logic::Not, d: second, a: first, b: first, invert_b: false });
                self.write_both(p, q, [first, second], joined)
            }
            (target, None) => {
                let d = self.target(target, Type::Pred)?;
                self.join(d, first, joined);
                Ok(())
            }
            (target, Some(result)) => {
                let one = truth(result, ty).filter(|_| result != Type::Bf16 || !flush);
                let one = one.ok_or_else(|| self.unsupported())?;
                let mask = self.layout.mask();
                self.join(mask, first, joined);
                let d = self.typed_target(target, result)?;
                self.write_truth(d, one, mask)
            }
        }
    }

    /// Compares the first two sources; returns the slot of the resulting predicate.
    fn relation(&mut self, lanes: Lanes, ty: Type, operands: &[Operand<'a>]) -> Lowered<u32> {
        let (a, b) = (self.typed_source(&operands[1], ty)?, self.typed_source(&operands[2], ty)?);
        let d = self.layout.mask();
        self.push_lanes(lanes, Slots { d, a, b, ..Slots::default() });
        Ok(d)
    }

    /// Compares both halves of two pairs separately.
    fn compare_pairs(
        &mut self,
        [low, high]: [Lanes; 2],
        ty: Type,
        result: Option<Type>,
        joined: Joined,
        operands: &[Operand<'a>],
    ) -> Lowered<()> {
        let both = [self.relation(low, ty, operands)?, self.relation(high, ty, operands)?];
        match (&operands[0], result) {
            (Operand::Both(p, q), None) => self.write_both(p, q, both, joined),
            (_, None) => Err(self.syntax("two comparisons need two predicates")),
            (target, Some(result)) => {
                let one = match result {
                    Type::U32 | Type::S32 => 0xffff,
                    Type::F16x2 if ty == result => F16_ONE,
                    Type::Bf16x2 if ty == result => BF16_ONE,
                    _ => return Err(self.unsupported()),
                };
                let masks = [self.layout.mask(), self.layout.mask()];
                let words = [self.scratch(Width::Word), self.scratch(Width::Word)];
                for (index, (mask, word)) in masks.into_iter().zip(words).enumerate() {
                    self.join(mask, both[index], joined);
                    self.write_truth(word, one << (16 * index), mask)?;
                }
                let d = self.typed_target(target, result)?;
                self.push_lanes(
                    binary(|a: u32, b: u32| a | b),
                    Slots { d, a: words[0], b: words[1], ..Slots::default() },
                );
                Ok(())
            }
        }
    }

    fn write_both(&mut self, p: &'a str, q: &'a str, results: [u32; 2], joined: Joined) -> Lowered<()> {
        let targets = [self.target(&Operand::Name(p), Type::Pred)?, self.target(&Operand::Name(q), Type::Pred)?];
        // Both results may be combined with a predicate that one of them overwrites, so they are computed before either
        // is written.
        let between = [self.layout.mask(), self.layout.mask()];
        for (d, a) in between.into_iter().zip(results) {
            self.join(d, a, joined);
        }
        for (d, a) in targets.into_iter().zip(between) {
            self.join(d, a, None);
        }
        Ok(())
    }

    fn write_truth(&mut self, d: u32, one: u32, mask: u32) -> Lowered<()> {
        let (one, zero) = (self.layout.constant(one), self.layout.constant(0));
        let choose = bits::copy("selp", Type::B32).ok_or_else(|| self.unsupported())?;
        self.push_lanes(choose, Slots { d, a: one, b: zero, c: mask, e: 0 });
        Ok(())
    }

    fn join(&mut self, d: u32, a: u32, joined: Joined) {
        let (function, b, invert_b) = joined.unwrap_or((Logic::Copy, a, false));
        self.push(Op::Predicate { function, d, a, b, invert_b });
    }
}

const F16_ONE: u32 = 0x3c00;
const BF16_ONE: u32 = 0x3f80;

fn logic(name: &str) -> Logic {
    match name {
        "and" => Logic::And,
        "or" => Logic::Or,
        _ => Logic::Xor,
    }
}

/// Returns the value that `set` writes for a true comparison of values of type `ty`.
fn truth(result: Type, ty: Type) -> Option<u32> {
    debug_assert_eq!(width(result), Width::Word);
    Some(match result {
        Type::U32 | Type::S32 => u32::MAX,
        Type::U16 | Type::S16 if matches!(ty, Type::F16 | Type::Bf16) => 0xffff,
        Type::F32 if !matches!(ty, Type::F16 | Type::Bf16) => 1f32.to_bits(),
        Type::F16 if ty != Type::Bf16 => F16_ONE,
        Type::Bf16 => BF16_ONE,
        _ => return None,
    })
}
