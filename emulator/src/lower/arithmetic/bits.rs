//! Bit operations: logic, shifts, bit fields and permutations.

use super::super::emitter::{Emitter, Lowered};
use super::super::modifiers::Modifiers;
use crate::ops::bits;
use crate::ops::lanes::{Slots, compare};
use crate::program::{Logic, Op};
use crate::ptx::tree::Operand;
use crate::ptx::types::Type;

impl<'a> Emitter<'a, '_> {
    pub fn bits(&mut self, name: &'a str, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        match name {
            "prmt" => return self.permute(m, operands),
            "shf" => return self.funnel(m, operands),
            "lop3" => return self.table(m, operands),
            _ => {}
        }
        let suffix = match name {
            "bfind" => m.one_of(&["shiftamt"]),
            "bmsk" | "szext" => m.one_of(&["clamp", "wrap"]),
            _ => None,
        };
        let ty = m.ty()?;
        m.finish()?;
        if ty == Type::Pred {
            return self.logic(name, operands);
        }
        let spelled = suffix.map_or(name.to_owned(), |suffix| format!("{name}.{suffix}"));
        let lanes = bits::bitwise(&spelled, ty);
        let word = Type::U32;
        match name {
            "not" | "cnot" | "brev" => self.emit(lanes, operands, ty, &[ty]),
            "popc" | "clz" | "bfind" => self.emit(lanes, operands, word, &[ty]),
            "shl" | "shr" | "szext" => self.emit(lanes, operands, ty, &[ty, word]),
            "bmsk" => self.emit(lanes, operands, ty, &[word, word]),
            "fns" => self.emit(lanes, operands, ty, &[ty, word, word]),
            "bfe" => self.emit(lanes, operands, ty, &[ty, word, word]),
            "bfi" => self.emit(lanes, operands, ty, &[ty, ty, word, word]),
            _ => self.emit(lanes, operands, ty, &[ty, ty]),
        }
    }

    fn permute(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let ty = m.ty()?;
        let mode = m.one_of(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]).unwrap_or_default();
        m.finish()?;
        let lanes = bits::permute(mode).filter(|_| ty == Type::B32);
        self.emit(lanes, operands, Type::B32, &[Type::B32; 3])
    }

    fn funnel(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let left = m.one_of(&["l", "r"]).ok_or_else(|| self.unsupported())? == "l";
        let wrap = m.one_of(&["wrap", "clamp"]).ok_or_else(|| self.unsupported())? == "wrap";
        let ty = m.ty()?;
        m.finish()?;
        let lanes = Some(bits::funnel(left, wrap)).filter(|_| ty == Type::B32);
        self.emit(lanes, operands, Type::B32, &[Type::B32, Type::B32, Type::U32])
    }

    /// Lowers `lop3`, which may also compare its result with zero and combine that with a predicate.
    fn table(&mut self, m: &mut Modifiers<'a>, operands: &[Operand<'a>]) -> Lowered<()> {
        let function = match m.one_of(&["and", "or"]) {
            Some("and") => Some(Logic::And),
            Some(_) => Some(Logic::Or),
            None => None,
        };
        let ty = m.ty()?;
        m.finish()?;
        let lanes = bits::bitwise("lop3", ty).ok_or_else(|| self.unsupported())?;
        let count = if function.is_some() { 6 } else { 5 };
        self.arity(operands, count..=count)?;
        if !matches!(operands[4], Operand::Integer(_)) {
            return Err(self.syntax("the table is not a constant"));
        }
        let mut slots = [0; 4];
        for (slot, operand) in slots.iter_mut().zip(&operands[1..]) {
            *slot = self.typed_source(operand, Type::B32)?;
        }
        let [a, b, c, e] = slots;
        let (result, predicate) = match (&operands[0], function) {
            (Operand::Both(result, predicate), Some(function)) => (Operand::Name(result), Some((*predicate, function))),
            (Operand::Both(..), None) | (_, Some(_)) => return Err(self.syntax("result of the wrong form")),
            (result, None) => (result.clone(), None),
        };
        let d = self.typed_target(&result, Type::B32)?;
        let Some((predicate, function)) = predicate else {
            self.push_lanes(lanes, Slots { d, a, b, c, e });
            return Ok(());
        };
        let (with, invert_b) = self.predicate(&operands[5])?;
        let (p, is_set) = (self.target(&Operand::Name(predicate), Type::Pred)?, self.layout.mask());
        self.push_lanes(lanes, Slots { d, a, b, c, e });
        self.push_lanes(compare(|a: u32, _: u32| a != 0), Slots { d: is_set, a: d, b: d, ..Slots::default() });
        self.push(Op::Predicate { function, d: p, a: is_set, b: with, invert_b });
        Ok(())
    }

    fn logic(&mut self, name: &str, operands: &[Operand<'a>]) -> Lowered<()> {
        let function = match name {
            "and" => Logic::And,
            "or" => Logic::Or,
            "xor" => Logic::Xor,
            "not" => Logic::Not,
            _ => return Err(self.unsupported()),
        };
        let sources = if function == Logic::Not { 1 } else { 2 };
        self.arity(operands, sources + 1..=sources + 1)?;
        let a = self.source(&operands[1], Type::Pred)?;
        let b = if sources == 2 { self.source(&operands[2], Type::Pred)? } else { a };
        let d = self.target(&operands[0], Type::Pred)?;
        self.push(Op::Predicate { function, d, a, b, invert_b: false });
        Ok(())
    }
}
